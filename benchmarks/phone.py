"""An environment whose user has to be asked three times; nothing can be called."""

from dataclasses import dataclass

from interaction.environment import AskUser, EnvironmentBase, GoldMessage, Request, UserWords
from interaction.outcome import ToolResult, TurnResult, Verdicts
from interaction.record import StopReason

WORDS = ("My line is dead.", "Yes, it is.", "Goodbye.")


@dataclass(frozen=True)
class Task:
    """The user says three things; the last one ends the conversation."""

    id: str
    environment: str = "phone"
    category: str = "phone"
    part: str = "train"

    @property
    def cluster(self):
        return self.id

    def open(self):
        return Attempt()

    def gold(self):
        asked = [UserWords(WORDS[0]), GoldMessage(answer="Is it?"), UserWords(WORDS[1]), GoldMessage(answer="Fixed.")]
        return [*asked, UserWords(WORDS[2])]


class Attempt(EnvironmentBase):
    def __init__(self):
        self.said, self.heard = [{"role": "system", "content": "You have a phone."}], []

    def begin(self):
        return AskUser(self.said)

    def call(self, call):
        return ToolResult("there is nothing to call")

    def answer(self, text):
        self.said += [{"role": "assistant", "content": self.heard[-1]}, {"role": "user", "content": text}]
        return AskUser(self.said)

    def hear(self, words):
        if len(self.heard) == len(WORDS) - 1:
            self.over = StopReason.user_stop
            return None
        self.heard.append(words)
        return Request(words)

    def cut(self, reason):
        return False

    def verdicts(self):
        return Verdicts(tuple(TurnResult(words, None) for words in self.heard), passed=self.over is not None)


def load_tasks():
    return [Task(f"phone_{number}") for number in range(64)]
