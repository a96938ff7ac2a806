"""A user's environment in one file, and a data set: the documented ones work, a broken one is refused with a line.

Whatever breaks the contract ends the preparation of data with one line, and nothing is written.
"""

import json
import os
import re
from pathlib import Path

import pytest
from support.entries import write
from support.own_environment import GOLD, VERDICTS, example, write_example

import interaction.environment as environments
from data_prep.__main__ import main as prepare_data
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.settings import CONFIG_DIR, compose
from recipe.tools.audit import main as audit


def config_of(*overrides):
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={CONFIG_DIR}/agent_loops.yaml"
    return compose("stage2", ["hardware=tiny", loops, *overrides])


TOOLS = """
import functools, threading, beside
from interaction.tool_environment import Call, ToolTask
NOTED = []
class Box:
    lazy = None
    notes = {"lock": threading.Lock(), "items": []}
    def put(self, tags: list[str] = []): setattr(Box, 'lazy', 1) or LIST.append("x")
    put = functools.wraps(put)(lambda *a, _put=put, **k: _put(*a, **k))
def load_tasks(): return [ToolTask("own", "t", Box, [("Go.", [Call("put", {})])])]
"""
KEPT = example().replace('"inventory"', '"own"').replace("dict(task.stock)", "KEPT.setdefault('x', dict(task.stock))")
SHARED = {"tags": "Box.put", "NOTED": "NOTED", "self.notes['items']": "Box.notes", KEPT: "then {'role'"}
SHARED["beside.NOTED"] = "beside.NOTED"


@pytest.mark.parametrize("where", SHARED)
def test_what_attempts_share_is_found_before_a_start_and_by_the_audit(where, tmp_path, capsys, monkeypatch):
    text = f"{KEPT}\nKEPT = {{}}\n" if where == KEPT else TOOLS.replace("LIST", where)
    (path := tmp_path / "own.py").write_text(text)
    (tmp_path / "beside.py").write_text("NOTED = []")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PreflightError, match=SHARED[where]) as refused:
        require(data.environments(config_of(f"+interaction.environments.own={path}")))
    assert "\n" not in str(refused.value)
    assert audit(["--environment", str(path)]) == 2 and SHARED[where] in capsys.readouterr().err


def test_its_data_and_the_reward_pass_the_checks_of_a_stage(tmp_path):
    path = write_example(tmp_path)
    assert len(example().splitlines()) <= 80
    assert prepare_data(["--environment", str(path), "--out", str(tmp_path), "--docs", "signature"]) == 0
    files = [f"data.{key}_files={tmp_path}/inventory_{key}.parquet" for key in ("train", "val")]
    config = config_of(f"+interaction.environments.inventory={os.path.relpath(path)}", *files)
    require(data.environments(config))
    assert config.interaction.environments.inventory == str(path), "workers have other working directories"
    require(data.rows(config, [], read := {}))
    require(data.reward(config, [], read))
    config.reward.custom_reward_function.path = "pkg://rewards.step"
    with pytest.raises(PreflightError, match="the record of move_0 does not say which calls are gold's"):
        require(data.reward(config, [], read))


def test_a_start_takes_data_and_settings_and_refuses_a_file_that_was_broken_since(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "your_data.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    path = write(tmp_path, shown, "office.json")
    assert prepare_data(["--json", str(path), "--out", str(tmp_path), "--docs", "signature"]) == 0
    given = [f"data.{part}_files={tmp_path}/office_{part}.parquet" for part in ("train", "val")]
    given += ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    given += [f"+interaction.environments.office={path}"]
    config = config_of(*given, "+interaction.train.environments.office.augment=true")
    require(data.environments(config))
    require(data.rows(config, [], read := {}))
    require(data.reward(config, [], read))
    write(tmp_path, [{**json.loads(shown)[0], "ground_truth": [["fly()"], ["mkdir()"]]}], path.name)
    environments.load_tasks.cache_clear()
    environments._module.cache_clear()
    with pytest.raises(PreflightError) as refused:
        require(data.environments(config_of(*given)))
    said = str(refused.value)
    assert "interaction.environments.office=" in said and "'fly'" in said and "\n" not in said


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
    (UNKNOWN, "ToolResult('no', facts={'a': {1}})"),
    ("self.cut(None)", "return 'thanks'"),
    ("return True\n", "pass\n"),
    ("return True\n", "return 2\n"),
    (f"return {VERDICTS}", "pass"),
    (VERDICTS, f"[{VERDICTS}]"),
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
    return prepare_data(["--environment", str(path), "--out", str(folder / f"data_{name}"), "--docs", "signature"])


def test_whatever_breaks_the_contract_is_refused_in_one_line(tmp_path, capsys):
    failed = [pair for pair in CHANGED if pair[0] not in example()]
    for number, source in enumerate([*FILES, *(example().replace(*pair) for pair in CHANGED)]):
        name = f"inventory{number}"
        status = prepared(tmp_path, source.replace("import Environ", "import UserWords, Environ"), name)
        said = capsys.readouterr().err
        one_line = said.startswith("data_prep: ") and said.count("\n") == 1 and name in said and ": None" not in said
        if status != 1 or not one_line or (tmp_path / f"data_{name}").exists():
            failed.append((number, source[-200:], said))
    assert not failed
    for name, result, said in (  # what it answers to a call that it does not know, and the fault
        ("place", "1 / 0", "ZeroDivisionError: division by zero at place.py:"),
        ("text", '"no"', "gave str; expected"),
        ("number", "ToolResult(3)", "gave ToolResult; expected"),
    ):
        assert prepared(tmp_path, example().replace(UNKNOWN, result), name) == 1
        assert said in capsys.readouterr().err
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
        same, *notes = sorted(line for line in said.splitlines() if line.startswith("NOTE"))
        assert same == "NOTE 30 of 30 held-out rows have the prompt of a training row"
        assert len(notes) == noted and all("List all from the beginning" in note for note in notes), name
