"""A reward file loads alike in preflight, in rescoring and in verl's reward worker."""

import asyncio
import json
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from recipe import preflight, reward_file

DATACLASS = """
from __future__ import annotations
import pickle
from dataclasses import dataclass
from typing import get_type_hints

@dataclass
class Weights:
    passed: float = 1.0

def compute_score(data_source, solution_str, ground_truth, extra_info, scale=1.0, **kwargs):
    weights = pickle.loads(pickle.dumps(Weights()))           # looks the class up in its module
    assert get_type_hints(Weights) == {"passed": float}       # and so does this
    turns = extra_info["episode"]["turns"]
    return {"score": scale * weights.passed * sum(turn["passed"] for turn in turns)}
"""
ASYNC = (
    "async def compute_score(data_source, solution_str, ground_truth, extra_info, scale=1.0):\n    return scale * 2\n"
)
COUNTS = "calls = []\ndef compute_score(**kwargs):\n    calls.append(1)\n    return float(len(calls))\n"


def config_of(tmp_path, text, name="compute_score", **arguments):
    path = tmp_path / "my_reward.py"
    path.write_text(text)
    setting = {"path": str(path), "name": name} | ({"reward_kwargs": arguments} if arguments else {})
    compared = {"filter_groups": {"enable": False}}
    return OmegaConf.create({"algorithm": compared, "reward": {"custom_reward_function": setting}})


def loaded_by_verl(config):
    from verl.trainer.ppo.reward import get_custom_reward_fn

    return get_custom_reward_fn(reward_file.for_verl(config))


def call(function):
    record = preflight.sample_record()
    return function(data_source="bfcl/base", solution_str="", ground_truth="[]", extra_info={"episode": record})


def test_a_file_with_a_dataclass_loads_in_preflight_and_in_verl(tmp_path):
    config = config_of(tmp_path, DATACLASS, scale=3.0)
    turns = len(preflight.sample_record()["turns"])
    preflight.check_reward(config)
    assert call(loaded_by_verl(config)) == {"score": 3.0 * turns}


def test_a_file_with_a_dataclass_loads_in_rescoring(tmp_path):
    config_of(tmp_path, DATACLASS)
    stored = tmp_path / "run" / "stage1_format" / "rollouts" / "train" / "000001.jsonl"
    stored.parent.mkdir(parents=True)
    line = {
        "scenario_id": "multi_turn_base_0",
        "uid": "a",
        "session_id": 0,
        "score": 0.0,
        "episode": preflight.sample_record(),
    }
    stored.write_text(json.dumps(line) + "\n")
    command = [
        sys.executable,
        "-m",
        "recipe.rescore",
        str(tmp_path / "run"),
        "--reward",
        str(tmp_path / "my_reward.py"),
    ]
    done = subprocess.run([*command, "scale=2"], capture_output=True, text=True)
    assert done.returncode == 0 and "8.000" in done.stdout, done.stderr


def test_an_async_reward_stays_one_for_verl(tmp_path):
    assert asyncio.run(call(loaded_by_verl(config_of(tmp_path, ASYNC, scale=3.0)))) == 6.0


def test_a_file_is_run_once_however_often_it_is_loaded_and_called(tmp_path):
    config = config_of(tmp_path, COUNTS)
    function = loaded_by_verl(config)
    assert [call(function), call(function), call(loaded_by_verl(config))] == [1.0, 2.0, 3.0]


def test_a_reward_file_may_load_another(tmp_path):
    config_of(tmp_path, COUNTS)
    outer = tmp_path / "outer.py"
    outer.write_text(
        "from recipe import reward_file\n"
        f"inner = reward_file.load({str(tmp_path / 'my_reward.py')!r}, 'compute_score')\n"
        "def compute_score(**kwargs):\n    return 10 * inner()\n"
    )
    code = f"from recipe.reward_file import load; print(load({str(outer)!r}, 'compute_score')())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "10.0\n", done.stderr


def test_a_module_is_left_to_verl_and_messages_name_what_the_user_gave(tmp_path):
    package = OmegaConf.create({"reward": {"custom_reward_function": {"path": "pkg://rewards.format", "name": "x"}}})
    assert reward_file.for_verl(package) == package
    assert reward_file.named(package.reward.custom_reward_function) == ("pkg://rewards.format", "x")
    config = config_of(tmp_path, DATACLASS)
    setting = reward_file.for_verl(config).reward.custom_reward_function
    assert reward_file.named(setting) == (str(tmp_path / "my_reward.py"), "compute_score")
    assert config.reward.custom_reward_function.path == str(tmp_path / "my_reward.py")


def test_a_file_that_cannot_be_imported_leaves_nothing_behind(tmp_path):
    before = set(sys.modules)
    with pytest.raises(reward_file.RewardFileError, match="cannot be imported: NameError"):
        reward_file.load(config_of(tmp_path, "later").reward.custom_reward_function.path, "compute_score")
    assert not {name for name in set(sys.modules) - before if name.startswith("reward_file_")}
