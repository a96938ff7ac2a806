"""Names, and the ways in which users put a wish. Whatever is composed belongs to exactly one part of the split.

The words of which names are composed occur in all parts; a name of two words and a number above 20 do not.
"""

from collections.abc import Callable
from random import Random
from typing import Literal, TypeVar
from zlib import crc32

from interaction.environment import Part

NOUNS = (
    *("agenda", "almanac", "archive", "atlas", "brief", "budget", "bulletin", "calendar", "catalogue", "chapter"),
    *("charter", "checklist", "contract", "diary", "digest", "draft", "essay", "forecast", "glossary", "guide"),
    *("handbook", "index", "inventory", "invoice", "journal", "ledger", "lesson", "letter", "logbook", "manual"),
    *("memo", "minutes", "notes", "outline", "pamphlet", "plan", "protocol", "quote", "recipe", "register"),
    *("report", "review", "roster", "schedule", "sketch", "survey", "syllabus", "timeline", "transcript", "voucher"),
)
ADJECTIVES = (
    *("amber", "ancient", "autumn", "brave", "bright", "calm", "central", "cobalt", "copper", "crystal"),
    *("distant", "early", "eastern", "gentle", "global", "golden", "hidden", "ivory", "lively", "lunar"),
    *("marble", "mellow", "misty", "modern", "nimble", "noble", "northern", "olive", "patient", "plain"),
    *("quiet", "rapid", "rustic", "scarlet", "silent", "silver", "simple", "solar", "steady", "urban"),
)
STATES = (
    *("accepted", "archived", "blocked", "cancelled", "complete", "confirmed", "corrected", "delayed", "delivered"),
    *("doubtful", "finished", "incomplete", "lost", "missing", "outdated", "pending", "printed", "rejected", "shared"),
)
ENDINGS = ("txt", "md", "csv", "log", "json", "py", "pdf", "docx")
FIRST_NAMES = (
    *("Aaron", "Bianca", "Carlos", "Diana", "Edgar", "Farida", "George", "Helena", "Igor", "Julia", "Karim", "Laura"),
    *("Marcus", "Nadia", "Omar", "Paula", "Quentin", "Rosa", "Stefan", "Tamara", "Ursula", "Victor", "Wanda", "Yusuf"),
)
LAST_NAMES = (
    *("Abbott", "Barlow", "Castle", "Dalton", "Ellis", "Fenwick", "Granger", "Holloway", "Irving", "Jansen", "Keller"),
    *("Lambert", "Merrick", "Norris", "Osborne", "Porter", "Quimby", "Ramsey", "Sutton", "Thorne", "Vaughn"),
    "Whitaker",
)
OCCASIONS = ("a meeting", "moving house", "my monthly review", "a long call", "preparing a trip", "closing the quarter")

Words = Literal["plain", "other", "unseen"]
"""A set of wordings. No two sets share a wish, a register or a joint."""
REGISTERS: dict[Words, tuple[str, ...]] = {
    "plain": (
        "{Wish}.",
        "Please {wish}.",
        "Could you {wish}?",
        "I need you to {wish}.",
        "I'd like you to {wish}, please.",
        "quick one: {wish}",
        "Hey, I'm in the middle of {occasion}. {Wish}, would you?",
        "Kindly {wish} at your earliest convenience.",
        "Next task: {wish}.",
    ),
    "other": (
        "Can I ask you to {wish}?",
        "I was hoping you could {wish}.",
        "{Wish}, if you don't mind.",
        "Would you be so kind as to {wish}?",
        "Before I forget: {wish}.",
        "As I'm busy with {occasion}, {wish}.",
        "ok so {wish}",
    ),
    "unseen": (
        "It would help me if you could {wish}.",
        "When you get a moment, {wish}. Thanks!",
        "Do me a favour and {wish}.",
        "Any chance you could {wish}?",
        "Here is your assignment: {wish}.",
        "{Wish}. Much appreciated!",
    ),
}
JOINTS: dict[Words, tuple[str, ...]] = {
    "plain": (" and then ", ", then ", ". After that, ", " and "),
    "other": (", and next ", ". ", ". Following that, ", "; also "),
    "unseen": (", and once that is done, ", ". Afterwards, ", "; when you have finished, "),
}
"""Between two wishes; after one that ends a sentence, the next begins with a capital."""

T = TypeVar("T")


def part_of(text: str) -> Part:
    """The part to which a program or a composed name belongs: 1 of 20 is dev, 3 are test."""
    number = crc32(text.encode()) % 20
    return "dev" if number == 0 else "test" if number <= 3 else "train"


class Names:
    """Composed names of one part."""

    def __init__(self, random: Random, part: Part) -> None:
        self._random, self._part = random, part

    def _of_part(self, make: Callable[[], T]) -> T:
        while True:
            made = make()
            if part_of(str(made)) == self._part:
                return made

    def _pair(self, first: tuple[str, ...], second: tuple[str, ...], between: str) -> str:
        return self._of_part(lambda: f"{self._random.choice(first)}{between}{self._random.choice(second)}")

    def file(self) -> str:
        """As `ledger.csv`, or `ivory_ledger.csv`."""
        if self._random.random() < 0.5:
            return self._pair(NOUNS, ENDINGS, ".")
        return f"{self._pair(ADJECTIVES, NOUNS, '_')}.txt"

    def folder(self) -> str:
        """As `lunar_archive`."""
        return self._pair(ADJECTIVES, NOUNS, "_")

    def person(self) -> str:
        """As `Rosa Keller`."""
        return self._pair(FIRST_NAMES, LAST_NAMES, " ")

    def account(self) -> str:
        """As `nimble_porter`."""
        return self._pair(ADJECTIVES, LAST_NAMES, "_").lower()

    def title(self) -> str:
        """As `misty timeline`."""
        return self._pair(ADJECTIVES, NOUNS, " ")

    def password(self) -> str:
        """As `mistytimeline`."""
        return self.title().replace(" ", "")

    def sentence(self) -> str:
        """As `the misty timeline is delayed`."""
        return f"the {self.title()} is {self._random.choice(STATES)}"

    def number(self, low: int, high: int) -> int:
        """Of the part, where the range is wide enough to be shared out."""
        draw = lambda: self._random.randint(low, high)  # noqa: E731
        return self._of_part(draw) if high - low > 100 else draw()
