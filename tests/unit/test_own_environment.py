"""An environment of a user's, in one file: the documented one works everywhere, a broken one is refused with a line."""

import os

import pytest
from support.own_environment import example, write_example

from data_prep.__main__ import main as prepare_data
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.settings import CONFIG_DIR, compose
from recipe.tools.audit import main as audit


def config_of(*overrides):
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={CONFIG_DIR}/agent_loops.yaml"
    return compose("stage2", ["hardware=tiny", loops, *overrides])


def test_a_broken_one_is_refused_in_one_line_before_the_start(tmp_path):
    (tmp_path / "inventory.py").write_text(example().replace("self.stock[good] += change", "self.stock[[good]] = 1"))
    with pytest.raises(PreflightError) as refused:
        require(data.environments(config_of(f"+interaction.environments.inventory={tmp_path}/inventory.py")))
    assert "'list' at inventory.py:56" in str(refused.value) and "\n" not in str(refused.value)


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
    with pytest.raises(PreflightError, match=SHARED[where]):
        require(data.environments(config_of(f"+interaction.environments.own={path}")))
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
