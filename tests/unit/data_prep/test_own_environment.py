"""Data of a user's environment: whatever breaks the contract ends with one line, and nothing is written."""

import pytest
from support.own_environment import GOLD, VERDICTS, example

from data_prep.__main__ import main

SPACE = "from types import SimpleNamespace as Space\n"
FILES = {
    "SyntaxError": "x = = 1",
    "raises ZeroDivisionError: division by zero at FILE:1": "1 / 0",
    "raises SystemExit: bye at FILE:1": "raise SystemExit('bye')",
    "has no function load_tasks()": "load_tasks = []",
    "load_tasks() raises SystemExit: bye": "def load_tasks(): exit('bye')",
    "load_tasks() raises TypeError: 'NoneType' object is not iterable": "def load_tasks(): pass",
    "gives no task": "def load_tasks(): return []",
    "load_tasks()[0] is 'a', which lacks environment, id,": "def load_tasks(): return ['a']",
    "lacks open(), gold()": (
        f"{SPACE}def load_tasks(): return [Space(id='a', cluster='a', environment='x', category='c', part='train')]"
    ),
}
"""What is said -> a whole file."""

FUNCTIONS = 'Request(f"Please {verb} {pieces} {good}.", FUNCTIONS, policy="You keep a stock.")'
UNKNOWN = 'ToolResult("no such function or good", ErrorKind.BAD_ARGUMENTS)'
BEFORE = "def load_tasks():"
CHANGED = {
    # tasks
    "which lacks category": ('category: str = "move"', "kind: int = 0"),
    "half of a surrogate pair": ('f"move_{number}"', 'f"move\\ud800{number}"'),
    "part 'held'; expected one of train, dev, test": ('"test")\n', '"held")\n'),
    "59 tasks have the id of another one": ('f"move_{number}"', '"move"'),
    "has tasks in dev and in test": ("str(number)", "str(number // 2)"),
    "names the environment 'stock'": ('environment: str = "inventory"', 'environment: str = "stock"'),
    # attempts
    "TypeError: Attempt.__init__() missing": ("return Attempt(self)", "return Attempt()"),
    "open(): SystemExit: bye at FILE": ("return Attempt(self)", "raise SystemExit('bye')"),
    "'NoneType' object has no attribute 'begin'": ("return Attempt(self)", "Attempt(self)"),
    "has no attribute 'answer'": ("def answer(", "def respond("),
    "not enough values to unpack": ("verb, good, pieces =", "verb, good, pieces, more ="),
    "has no attribute 'user'": (f"return {FUNCTIONS}", "return None"),
    "KeyError: 'name'": ('{"name": name,', '{"names": name,'),
    "KeyError: 'good' at FILE": ('call.arguments.get("good")', 'call.arguments["good"]'),
    "unhashable type: 'list' at FILE": (
        "good, pieces = call",
        "{*call.arguments.values()}\n        good, pieces = call",
    ),
    "call() gave str; expected a ToolResult with a text": (UNKNOWN, '"no"'),
    "facts or texts are no JSON": (UNKNOWN, "ToolResult('no', facts={'a': {1}})"),
    "str is to follow": ("self.cut(None)", "return 'thanks'"),
    "cut() gave None; expected True where the turn was judged": ("return True\n", "pass\n"),
    "verdicts() gave NoneType; expected Verdicts": (f"return {VERDICTS}", "pass"),
    "verdicts() has passed='no'": (VERDICTS, "Verdicts((), 'no')"),
    "verdicts() has passed=0.5": (VERDICTS, "Verdicts((TurnResult('', 0.5),), True)"),
    "'int' object is not iterable": (VERDICTS, "Verdicts(1, True)"),
    # gold
    "gold() raises ZeroDivisionError": (f"return {GOLD}", "yield 1 / 0"),
    "gold() gives 'a' (str); expected GoldMessage or UserWords": (GOLD, '["a"]'),
    "AttributeError: 'dict' object has no attribute": (GOLD, "[GoldMessage([{'name': 'add'}])]"),
    "the arguments must be an object, not list": (GOLD, "[GoldMessage([Call('add', ['bolts', 3])])]"),
    "it takes no further reply": (GOLD, f"{GOLD} * 2"),
    "gold ends after 1 messages": (GOLD, "[GoldMessage((self.call,))]"),
    "ends with completed and does not pass in turns [0]": ("1 if", "2 if"),
    "division by zero at FILE:57": ("return ToolResult(f'{{", "return 1 / 0, str(f'{{"),
    # what a file may have besides
    "check_tasks() raises KeyError: 'size'": (BEFORE, f"def check_tasks(): raise KeyError('size')\n\n\n{BEFORE}"),
}
"""What is said -> one place of the documented environment, and what stands there instead."""


def prepared(folder, source, name="inventory"):
    path = folder / f"{name}.py"
    path.write_text(source.replace('"inventory"', f'"{name}"'))
    return main(["--environment", str(path), "--out", str(folder / f"data_{name}"), "--docs", "signature"])


def test_whatever_breaks_the_contract_is_refused_in_one_line(tmp_path, capsys):
    failed = []
    sources = [*FILES.items(), *((said, example().replace(*pair)) for said, pair in CHANGED.items())]
    assert all(old in example() for old, _ in CHANGED.values())
    for number, (said, source) in enumerate(sources):
        name = f"inventory{number}"
        source = source.replace("environment='x'", f"environment='{name}'")
        status = prepared(tmp_path, source.replace("import Environ", "import DataSet, UserWords, Environ"), name)
        refused = capsys.readouterr().err
        one_line = refused.startswith("data_prep: ") and refused.count("\n") == 1 and name in refused
        if status != 1 or not one_line or said.replace("FILE", f"{name}.py") not in refused:
            failed.append((said, refused))
        assert not (tmp_path / f"data_{name}").exists(), "nothing is written"
    assert not failed


ALLOWED = {
    "tasks": ("return tasks", "yield from tasks"),
    "calls": ("calls=(self.call,)", "calls=[self.call]"),
    "none": (f"return {GOLD}", "return []"),
    "functions": ("FUNCTIONS, policy", "(one for one in FUNCTIONS), policy"),
    "nothing": ("FUNCTIONS, policy", "(), policy"),
    "whole": ("TurnResult(self.begin().user, self.passed)", "TurnResult('', None)"),
    "late": (VERDICTS, "Verdicts((), self.passed)"),
    "over": (
        "def begin(self):",
        "@property\n    def over(self):\n        return self.done\n\n    def begin(self):\n        self.done = None",
    ),
    "bare": (
        "class Attempt(EnvironmentBase):",
        "class Attempt:\n    over, facts, close = None, (lambda self: {}), (lambda self: None)\n",
    ),
    "numpy": (
        "self.passed = self.stock == expected",
        "self.passed = __import__('numpy').bool_(self.stock == expected)",
    ),
    "number": ("self.passed = self.stock == expected", "self.passed = int(self.stock == expected)"),
}


def test_what_the_contract_leaves_open_is_no_mistake(tmp_path, capsys):
    for name, (old, new) in ALLOWED.items():
        assert old in example()
        assert prepared(tmp_path, example().replace(old, new), name) == 0, (name, capsys.readouterr().err)
        assert "NOTE environment" not in capsys.readouterr().out, name


TURNS = """
from dataclasses import dataclass

from interaction.call import Call
from interaction.environment import EnvironmentBase, GoldMessage, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts

PRESS = {"name": "press", "description": "Presses.", "parameters": {"type": "dict", "properties": {}}}


@dataclass(frozen=True)
class Task:
    id: str
    cluster: str
    part: str
    environment: str = "inventory"
    category: str = "press"

    def open(self):
        return Attempt()

    def gold(self):
        return [GoldMessage((Call("press", {}),)), GoldMessage(answer="done")] * 3


class Attempt(EnvironmentBase):
    def __init__(self):
        self.turn, self.pressed = 0, [0, 0, 0]

    def begin(self):
        return Request("Press.", [PRESS])

    def call(self, call):
        if call.name != "press":
            return ToolResult("there is no such function", ErrorKind.UNKNOWN_FUNCTION)
        self.pressed[self.turn] += 1
        return ToolResult("pressed")

    def answer(self, text):
        self.turn += 1
        return Request("Press again.") if self.turn < 3 else None

    def cut(self, reason):
        return True

    def verdicts(self):
        return Verdicts(tuple(TurnResult("", PASSED) for times in LISTED), self.pressed == [1, 1, 1])


def load_tasks():
    return [Task(f"press_{n}", str(n), part) for n, part in enumerate(("train", "train", "dev", "test"))]
"""


@pytest.mark.parametrize(
    ("name", "turns", "passed", "noted"),
    [
        ("all", "self.pressed", "times == 1", False),
        ("ended", "self.pressed[:self.turn]", "times == 1", True),
        ("reached", "self.pressed[:self.turn + 1]", "times == 1", True),
        ("unjudged", "self.pressed[:self.turn]", "None", False),
    ],
)
def test_judged_turns_that_are_known_only_when_they_are_reached_are_noted(name, turns, passed, noted, tmp_path, capsys):
    assert prepared(tmp_path, TURNS.replace("LISTED", turns).replace("PASSED", passed), name) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOTE environment")]
    assert len(notes) == noted and all("List all from the beginning" in note for note in notes)
