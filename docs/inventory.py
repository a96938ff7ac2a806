"""A stock of goods: the user asks for goods to be moved, and the stock at the end is judged."""

from dataclasses import dataclass
from random import Random

from interaction.call import Call
from interaction.environment import EnvironmentBase, GoldMessage, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts


def function(name, description, **parameters):
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "dict", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": description, "parameters": schema}


FUNCTIONS = (
    function("count", "How many pieces of a good there are.", good="string"),
    function("add", "Put pieces of a good into the stock.", good="string", pieces="integer"),
    function("take", "Take pieces of a good out of the stock.", good="string", pieces="integer"),
)


@dataclass(frozen=True)
class Task:
    id: str
    cluster: str
    stock: tuple[tuple[str, int], ...]
    call: Call  # the one that fulfils the request
    part: str  # "train", "dev" or "test"
    environment: str = "inventory"
    category: str = "move"

    def open(self):
        return Attempt(self)

    def gold(self):
        return [GoldMessage(calls=(self.call,)), GoldMessage(answer="done")]


class Attempt(EnvironmentBase):
    def __init__(self, task):
        self.task, self.stock, self.passed = task, dict(task.stock), False

    def begin(self):
        verb, good, pieces = self.task.call.name, self.task.call.arguments["good"], self.task.call.arguments["pieces"]
        return Request(f"Please {verb} {pieces} {good}.", FUNCTIONS, policy="You keep a stock.")

    def call(self, call):
        good, pieces = call.arguments.get("good"), call.arguments.get("pieces", 0)
        if call.name not in ("count", "add", "take") or str(good) not in self.stock or type(pieces) is not int:
            return ToolResult("no such function or good", ErrorKind.BAD_ARGUMENTS)
        change = {"count": 0, "add": pieces, "take": -pieces}[call.name]
        if not 0 <= self.stock[good] + change < 1000:
            return ToolResult("the stock does not hold that", ErrorKind.EXECUTION)
        self.stock[good] += change
        return ToolResult(f'{{"{good}": {self.stock[good]}}}')

    def answer(self, text):
        self.cut(None)

    def cut(self, reason):
        arguments, expected = self.task.call.arguments, dict(self.task.stock)
        expected[arguments["good"]] += arguments["pieces"] * (1 if self.task.call.name == "add" else -1)
        self.passed = self.stock == expected
        return True

    def verdicts(self):
        return Verdicts((TurnResult(self.begin().user, self.passed),), self.passed)


def load_tasks():
    draw, tasks, parts = Random(0), [], ("train", "train", "dev", "test")
    for number in range(60):
        stock = tuple((good, draw.randrange(20, 90)) for good in ("apples", "bolts", "lamps"))
        call = Call(draw.choice(["add", "take"]), {"good": draw.choice(stock)[0], "pieces": draw.randrange(1, 20)})
        tasks.append(Task(f"move_{number}", str(number), stock, call, parts[number % 4]))
    return tasks
