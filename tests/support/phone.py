"""An environment, as a file, whose user speaks first and has to be asked, and that has a setting of its own.

It cannot use the words `???`.
"""

from pathlib import Path

PHONE = """
from dataclasses import dataclass
from interaction.environment import AskUser, EnvironmentBase, GoldMessage, Request, UserWords
from interaction.outcome import ToolResult, TurnResult, Verdicts
from interaction.record import StopReason
from interaction.users import UserFault

@dataclass(frozen=True)
class Options:
    greeting: str = "Be kind."

@dataclass(frozen=True)
class Task:
    id: str
    cluster: str
    environment: str = "{name}"
    category: str = "phone"
    part: str = "train"
    def open(self, **options):
        return Attempt(Options(**options))
    def gold(self):
        return [UserWords("My line is dead."), GoldMessage(answer="done"), UserWords("Goodbye.")]

class Attempt(EnvironmentBase):
    def __init__(self, options):
        self.options, self.heard = options, []
    def begin(self):
        return AskUser(({{"role": "system", "content": "You have a phone."}},))
    def call(self, call):
        return ToolResult("there is nothing to call")
    def answer(self, text):
        said = [{{"role": "assistant", "content": self.heard[-1]}}, {{"role": "user", "content": text}}]
        return AskUser(({{"role": "system", "content": "You have a phone."}}, *said))
    def hear(self, words):
        if words == "???":
            raise UserFault("the user says no sentence")
        if self.heard:
            self.over = StopReason.user_stop
            return None
        self.heard.append(words)
        return Request(words, policy=self.options.greeting)
    def cut(self, reason):
        return False
    def verdicts(self):
        return Verdicts(tuple(TurnResult(words, None) for words in self.heard), passed=self.over is not None)

def load_tasks():
    return [Task(f"phone_{{number}}", f"{{number}}", part="test" if number < 8 else "train") for number in range(12)]
"""
SAYS = ("My line is dead.", "Goodbye.")


def write_phone(folder: Path) -> Path:
    """Under a name of its own: an environment is known by its name for as long as a process lives."""
    path = folder / f"phone_{folder.name}.py"
    path.write_text(PHONE.format(name=path.stem))
    return path
