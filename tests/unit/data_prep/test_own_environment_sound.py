"""Data of an environment of a user's: what the contract leaves open is no mistake, and what is looked at, how often."""

import pyarrow.parquet as parquet
import pytest
from support.own_environment import GOLD, VERDICTS, example

from data_prep.__main__ import main
from interaction.attempt_contract import check_task
from interaction.environment import load_tasks, named

ALLOWED = {
    "a generator of tasks": ("return tasks", "yield from tasks"),
    "a tuple of tasks": ("return tasks", "return tuple(tasks)"),
    "a list of calls": ("calls=(self.call,)", "calls=[self.call]"),
    "a generator as gold": (f"return {GOLD}", f"yield from {GOLD}"),
    "no gold": (f"return {GOLD}", "return []"),
    "a list of functions": ("FUNCTIONS, policy", "[*FUNCTIONS], policy"),
    "no function": ("FUNCTIONS, policy", "(), policy"),
    "a task that is a tuple, with a method `index`": (
        "@dataclass(frozen=True)\nclass Task:",
        "class Task(NamedTuple):",
    ),
    "gold with a list as an argument": (
        '"pieces": draw.randrange(1, 20)',
        '"pieces": draw.randrange(1, 20), "to": ["a"]',
    ),
    "an episode that is judged as a whole": ("TurnResult(self.begin().user, self.passed)", "TurnResult('', None)"),
    "no turn known before the end": (VERDICTS, "Verdicts((), self.passed)"),
    "an end that is known after begin": (
        "def begin(self):",
        "@property\n    def over(self):\n        return self.done\n\n    def begin(self):\n        self.done = None",
    ),
    "over at once, and no limit after that": (
        "class Attempt(EnvironmentBase):",
        "class Attempt(EnvironmentBase):\n    over = property(lambda self: self.__dict__.get('ended'))\n",
    ),
    "no user to be heard": (
        "class Attempt(EnvironmentBase):",
        "class Attempt:\n    over, facts, close = None, (lambda self: {}), (lambda self: None)\n",
    ),
    "what is closed once": ("def answer", "def close(self): del self.stock\n\n    def answer"),
    "numpy's truth": ("self.passed = self.stock", "self.passed = __import__('numpy').bool_(self.stock"),
    "a number of 0 or 1": ("self.passed = self.stock", "self.passed = int(self.stock"),
    "the values of a dictionary": ("FUNCTIONS, policy", "{one['name']: one for one in FUNCTIONS}.values(), policy"),
    "a generator of functions": ("FUNCTIONS, policy", "(one for one in FUNCTIONS), policy"),
    "an empty dictionary of functions": ("FUNCTIONS, policy", "{}, policy"),
    "required and not documented": ("list(parameters)}", "[*parameters, 'unit']}"),
    "a parameter that may be anything": ("{key:", "{'unit': True} | {key:"),
    "tasks with a length and items": ("return tasks", "return __import__('collections').UserList(tasks)"),
    "tasks with items and no iterator": (
        "return tasks",
        "return type('Items', (), {'__len__': lambda one: 60, '__getitem__': lambda one, n: tasks[n]})()",
    ),
    "a setting": (
        "@dataclass(frozen=True)\nclass Task",
        "@dataclass(frozen=True)\nclass Options:\n    size: int = 3\n\n\n@dataclass(frozen=True)\nclass Task",
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_the_contract_leaves_open_is_no_mistake(case, tmp_path, capsys):
    old, new = ALLOWED[case]
    assert old in example()
    source = example().replace(old, new).replace("from random", "from typing import NamedTuple\nfrom random")
    if case in ("numpy's truth", "a number of 0 or 1"):
        source = source.replace("== expected\n", "== expected)\n")
    if case == "over at once, and no limit after that":
        source = source.replace("def call(self, call):", "def call(self, call):\n        self.ended = 'completed'")
        source = source.replace("return True\n", "assert self.over is None\n        return True\n")
        source = source.replace(GOLD, "[]")
    if case == "a setting":
        source = source.replace("def open(self)", "def open(self, size)")
    path = tmp_path / "inventory.py"
    path.write_text(source)
    assert main(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    assert "NOTE environment" not in capsys.readouterr().out


WITHOUT = "def open(self):\n        if int(self.cluster) >= 8:\n            raise OSError('not downloaded')\n"
LEFT_OUT = {
    "by category": (
        '    category: str = "move"\n',
        '    category = property(lambda one: "ab"[int(one.cluster) > 7])\n',
    ),
    "by the file's own data sets": (
        "def load_tasks():",
        "def data_sets(tiny, options): return {'a.parquet': DataSet('train', load_tasks()[:8])}\n\n\ndef load_tasks():",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_tasks_that_are_not_taken_are_not_opened(case, tmp_path):
    old, new = LEFT_OUT[case]
    assert old in example()
    source = example().replace("def open(self):\n", WITHOUT).replace(old, new)
    path = tmp_path / "inventory.py"
    path.write_text(source.replace("import Environ", "import DataSet, Environ"))
    chosen = ["--categories", "a"] * (case == "by category")
    arguments = ["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]
    assert main([*arguments, *chosen]) == 0
    assert (main(arguments) == 1) == bool(chosen), "of all categories they are taken"


INDICES = {
    "int(number) + 100": 100,
    "__import__('numpy').int64(number + 100)": 100,
    "None": 0,
    "'a'": 0,
    "number + 0.5": 0,
    "(lambda: 7)": 0,
}


@pytest.mark.parametrize("index", INDICES)
def test_a_row_has_the_index_of_its_task_where_that_is_a_whole_number(index, tmp_path):
    path = tmp_path / "inventory.py"
    source = example().replace('category: str = "move"', 'category: str = "move"\n    index: object = None')
    path.write_text(source.replace("parts[number % 4]))", f"parts[number % 4], index={index}))"))
    assert main(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    rows = parquet.read_table(tmp_path / "data" / "inventory_train.parquet").to_pylist()
    assert rows[0]["extra_info"]["index"] == INDICES[index]


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
    environment: str = "buttons"
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
        turns = tuple(TurnResult("", PASSED) for times in LISTED)
        return Verdicts(turns, self.pressed == [1, 1, 1])


def load_tasks():
    return [Task(f"press_{n}", str(n), part) for n, part in enumerate(("train", "train", "choose", "report"))]
"""
LISTED = {
    "all": ("self.pressed", "times == 1", None),
    "those that ended": ("self.pressed[:self.turn]", "times == 1", 0),
    "those that were reached": ("self.pressed[:self.turn + 1]", "times == 1", 1),
    "those that ended, which are not judged": ("self.pressed[:self.turn]", "None", None),
}


@pytest.mark.parametrize("case", LISTED)
def test_turns_that_are_judged_and_known_only_when_they_are_reached_are_noted(case, tmp_path, capsys):
    turns, passed, listed = LISTED[case]
    path = tmp_path / "buttons.py"
    path.write_text(TURNS.replace("LISTED", turns).replace("PASSED", passed))
    assert main(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOTE environment buttons")]
    assert len(notes) == (listed is not None)
    if notes:
        assert f"task press_0: verdicts() lists {listed} of 3 turns before the first" in notes[0]
        assert "List all from the beginning" in notes[0]


@pytest.mark.parametrize(("source", "opens"), [(example(), 2), (TURNS.replace("LISTED", "[]"), 1)])
def test_the_contract_takes_as_few_attempts_as_it_can(source, opens, tmp_path, monkeypatch):
    path = tmp_path / ("inventory.py" if "inventory" in source else "buttons.py")
    path.write_text(source)
    task = next(iter(load_tasks(named(str(path))).values()))
    opened, really = [], type(task).open
    monkeypatch.setattr(type(task), "open", lambda self: opened.append(self) or really(self))
    assert check_task(task) is None and len(opened) == opens
