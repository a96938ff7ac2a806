"""Data of a user's environment: whatever breaks the contract ends with one line, and nothing is written."""

from support.own_environment import GOLD, VERDICTS, example

from data_prep.__main__ import main

SPACE = "from types import SimpleNamespace as Space\n"
FILES = (
    *("x = = 1", "1 / 0", "raise SystemExit('bye')", "load_tasks = []", "def load_tasks(): exit('bye')"),
    *("def load_tasks(): pass", "def load_tasks(): return []", "def load_tasks(): return ['a']"),
    f"{SPACE}def load_tasks(): return [Space(id='a', cluster='a', environment='NAME', category='c', part='train')]",
)
FUNCTIONS = 'Request(f"Please {verb} {pieces} {good}.", FUNCTIONS, policy="You keep a stock.")'
UNKNOWN = 'ToolResult("no such function or good", ErrorKind.BAD_ARGUMENTS)'
CHANGED = (
    # tasks
    ('category: str = "move"', "kind: int = 0"),
    ('f"move_{number}"', 'f"move\\ud800{number}"'),
    ('"test")\n', '"held")\n'),
    ('f"move_{number}"', '"move"'),
    ("str(number)", "str(number // 2)"),
    ('environment: str = "inventory"', 'environment: str = "stock"'),
    # attempts
    ("return Attempt(self)", "raise SystemExit('bye')"),
    ("return Attempt(self)", "Attempt(self)"),
    ("def answer(", "def respond("),
    ("verb, good, pieces =", "verb, good, pieces, more ="),
    (f"return {FUNCTIONS}", "return None"),
    ('{"name": name,', '{"names": name,'),
    ("good, pieces = call", "{*call.arguments.values()}\n        good, pieces = call"),
    (UNKNOWN, '"no"'),
    (UNKNOWN, "ToolResult('no', facts={'a': {1}})"),
    ("self.cut(None)", "return 'thanks'"),
    ("return True\n", "pass\n"),
    (f"return {VERDICTS}", "pass"),
    (VERDICTS, "Verdicts((), 'no')"),
    (VERDICTS, "Verdicts((TurnResult('', 0.5),), True)"),
    # gold
    (f"return {GOLD}", "yield 1 / 0"),
    (GOLD, '["a"]'),
    (GOLD, "[GoldMessage([{'name': 'add'}])]"),
    (GOLD, "[GoldMessage([Call('add', ['bolts', 3])])]"),
    (GOLD, f"{GOLD} * 2"),
    (GOLD, "[GoldMessage((self.call,))]"),
    ("1 if", "2 if"),
    ("return ToolResult(f'{{", "return 1 / 0, str(f'{{"),
    ("def load_tasks():", "def check_tasks(): raise KeyError('size')\n\n\ndef load_tasks():"),
)
"""One place of the documented environment, and what stands there instead."""


def prepared(folder, source, name="inventory"):
    path = folder / f"{name}.py"
    path.write_text(source.replace('"inventory"', f'"{name}"').replace("NAME", name))
    return main(["--environment", str(path), "--out", str(folder / f"data_{name}"), "--docs", "signature"])


def test_whatever_breaks_the_contract_is_refused_in_one_line(tmp_path, capsys):
    failed = [pair for pair in CHANGED if pair[0] not in example()]
    for number, source in enumerate([*FILES, *(example().replace(*pair) for pair in CHANGED)]):
        name = f"inventory{number}"
        status = prepared(tmp_path, source.replace("import Environ", "import UserWords, Environ"), name)
        said = capsys.readouterr().err
        one_line = said.startswith("data_prep: ") and said.count("\n") == 1 and name in said
        if status != 1 or not one_line or (tmp_path / f"data_{name}").exists():
            failed.append((number, source[-200:], said))
    assert not failed
    assert prepared(tmp_path, example().replace(UNKNOWN, "1 / 0"), "inventory_place") == 1
    assert "ZeroDivisionError" in (said := capsys.readouterr().err) and " at inventory_place.py:" in said
    assert prepared(tmp_path, example().replace("def call(", "async def call("), "waits") == 0


STATES = "self.passed = self.stock == expected"
ALLOWED = {
    "tasks": ("return tasks", "yield from tasks"),
    "calls": ("calls=(self.call,)", "calls=[self.call]"),
    "none": (f"return {GOLD}", "return []"),
    "functions": ("FUNCTIONS, policy", "(one for one in FUNCTIONS), policy"),
    "nothing": ("FUNCTIONS, policy", "(), policy"),
    "whole": ("TurnResult(self.begin().user, self.passed)", "TurnResult('', None)"),
    "late": (VERDICTS, "Verdicts((), self.passed)"),
    "numpy": (STATES, STATES.replace("self.stock == expected", "__import__('numpy').bool_(self.stock == expected)")),
    "number": (STATES, STATES.replace("self.stock == expected", "int(self.stock == expected)")),
}


def test_what_the_contract_leaves_open_is_no_mistake(tmp_path, capsys):
    for name, (old, new) in ALLOWED.items():
        assert old in example()
        assert prepared(tmp_path, example().replace(old, new), name) == 0, (name, capsys.readouterr().err)
        assert "NOTE environment" not in capsys.readouterr().out, name


TURNS = {
    GOLD: f"{GOLD} * 3",
    'f"Please {verb} {pieces} {good}."': '"Move."',
    "dict(task.stock), False": "dict(task.stock), False\n        self.turn, self.moved = 0, [0, 0, 0]",
    "self.stock[good] += change": "self.moved[self.turn] += 1",
    "self.cut(None)": "self.turn += 1\n        return Request('Again.') if self.turn < 3 else None",
    VERDICTS: "Verdicts(tuple(TurnResult('', PASSED) for times in LISTED), self.moved == [1, 1, 1])",
}
"""Makes three requests of the one, the same in every task."""


def test_judged_turns_that_are_known_only_when_they_are_reached_are_noted(tmp_path, capsys):
    source = example()
    for old, new in TURNS.items():
        assert old in source
        source = source.replace(old, new)
    for name, turns, passed, noted in (
        ("all", "self.moved", "times == 1", False),
        ("ended", "self.moved[:self.turn]", "times == 1", True),
        ("reached", "self.moved[:self.turn + 1]", "times == 1", True),
        ("unjudged", "self.moved[:self.turn]", "None", False),
    ):
        assert prepared(tmp_path, source.replace("LISTED", turns).replace("PASSED", passed), name) == 0
        said = capsys.readouterr().out
        assert "NOTE 30 of 30 held-out rows have the prompt of a training row" in said
        notes = [line for line in said.splitlines() if line.startswith("NOTE environment")]
        assert len(notes) == noted and all("List all from the beginning" in note for note in notes), name
