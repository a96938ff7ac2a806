"""A reward file loads alike in preflight, in rescoring and in verl's reward worker."""

import asyncio
import itertools
import json
import pickle
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.preflight import reward as preflight_reward
from recipe.user_code import reward_file
from recipe.user_code.reward_process import RewardProcess
from recipe.user_code.reward_result import RewardError

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
    return OmegaConf.create({"algorithm": compared, "reward": {"custom_reward_function": setting, "timeout": 60}})


def loaded_by_verl(config):
    from verl.trainer.ppo.reward import get_custom_reward_fn

    return get_custom_reward_fn(reward_file.for_verl(config))


def call(function):
    record = preflight_reward.sample_record()
    return function(data_source="bfcl/base", solution_str="", ground_truth="[]", extra_info={"episode": record})


def test_a_file_with_a_dataclass_loads_in_preflight_and_in_verl(tmp_path):
    config = config_of(tmp_path, DATACLASS, scale=3.0)
    turns = len(preflight_reward.sample_record()["turns"])
    preflight_reward.check_reward(config)
    assert call(loaded_by_verl(config)) == {"score": 3.0 * turns}


def test_a_file_with_a_dataclass_loads_in_rescoring(tmp_path):
    config_of(tmp_path, DATACLASS)
    stored = tmp_path / "run" / "stage1_format" / "rollouts" / "train" / "000001.jsonl"
    stored.parent.mkdir(parents=True)
    line = {
        "task_id": "multi_turn_base_0",
        "uid": "a",
        "session_id": 0,
        "score": 0.0,
        "episode": preflight_reward.sample_record(),
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


def test_an_async_reward_is_called_in_one_event_loop_in_its_own_process(tmp_path):
    path = tmp_path / "my_reward.py"
    path.write_text(
        "import asyncio\nloops = []\nasync def compute_score(fails=False):\n"
        "    loops.append(asyncio.get_running_loop())\n"
        "    if fails:\n        raise SystemExit(3)\n    return float(len(set(loops)))\n"
    )
    with RewardProcess(str(path), "compute_score", 60) as reward:
        assert reward() == 1.0
        with pytest.raises(RewardError, match="raised SystemExit: 3"):
            reward(fails=True)
        assert reward() == 1.0


def test_a_file_is_run_once_however_often_it_is_loaded_and_called(tmp_path):
    config = config_of(tmp_path, COUNTS)
    function = loaded_by_verl(config)
    assert [call(function), call(function), call(loaded_by_verl(config))] == [1.0, 2.0, 3.0]


def test_a_reward_file_may_load_another(tmp_path):
    config_of(tmp_path, COUNTS)
    outer = tmp_path / "outer.py"
    outer.write_text(
        "from recipe.user_code import reward_file\n"
        f"inner = reward_file.load({str(tmp_path / 'my_reward.py')!r}, 'compute_score')\n"
        "def compute_score(**kwargs):\n    return 10 * inner()\n"
    )
    code = f"from recipe.user_code.reward_file import load; print(load({str(outer)!r}, 'compute_score')())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "10.0\n", done.stderr


def test_messages_name_what_the_user_gave(tmp_path):
    config = config_of(tmp_path, DATACLASS)
    setting = reward_file.for_verl(config).reward.custom_reward_function
    assert reward_file.named(setting) == (str(tmp_path / "my_reward.py"), "compute_score")
    assert config.reward.custom_reward_function.path == str(tmp_path / "my_reward.py")


NAMES = {"seconds": 1, "function": 2, "reward_file": 4, "reward_function": 5, "reward_timeout": 9}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_reward_gets_its_own_arguments_whatever_their_names(tmp_path, kind):
    text = f"{kind} compute_score(extra_info, {', '.join(NAMES)}, **given):\n    return {' + '.join(NAMES)}\n"
    config = config_of(tmp_path, text, **NAMES)
    preflight_reward.check_reward(config)
    result = call(loaded_by_verl(config))
    assert (asyncio.run(result) if kind == "async def" else result) == 21.0


@pytest.mark.parametrize(
    "name", ["_recipe_reward_file", "_recipe_reward_function", "_recipe_reward_timeout", "_recipe_reward_metric"]
)
def test_an_argument_that_the_recipe_needs_for_itself_is_refused(tmp_path, name):
    config = config_of(tmp_path, COUNTS, **{name: 1})
    with pytest.raises(PreflightError, match=f"reward_kwargs has {name}, .* another name"):
        preflight_reward.check_reward(config)
    with pytest.raises(reward_file.RewardFileError, match=f"reward_kwargs has {name}, .* another name"):
        reward_file.for_verl(config)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_fault_around_the_call_is_a_failed_reward_that_is_named(tmp_path, kind, capsys, monkeypatch):
    monkeypatch.setattr(reward_file, "_failures", itertools.count(1))
    function = loaded_by_verl(config_of(tmp_path, f"{kind} compute_score(**given):\n    return 1.0\n"))
    monkeypatch.setattr(reward_file, "checked", lambda result: result.nothing)
    with pytest.raises(reward_file.RewardFailed, match="raised AttributeError.*an episode") as error:
        result = function(data_source="", extra_info="no dict")
        asyncio.run(result)
    assert str(tmp_path / "my_reward.py") in str(error.value) and "\n" not in str(error.value)
    assert "REWARD FAILED on an episode: the reward compute_score of" in capsys.readouterr().out


def test_a_module_goes_the_same_way(tmp_path):
    config = config_of(tmp_path, "")
    config.reward.custom_reward_function.path = "pkg://rewards.format"
    given = reward_file.for_verl(config)
    assert reward_file.named(given.reward.custom_reward_function) == ("pkg://rewards.format", "compute_score")
    assert call(loaded_by_verl(config))["score"] == 2.0


def test_a_file_that_cannot_be_imported_leaves_nothing_behind(tmp_path):
    before = set(sys.modules)
    with pytest.raises(reward_file.RewardFileError, match="cannot be imported: NameError"):
        reward_file.load(config_of(tmp_path, "later").reward.custom_reward_function.path, "compute_score")
    assert not {name for name in set(sys.modules) - before if name.startswith("reward_file_")}


FAILS = {
    "return float('nan')": "returned the score nan",
    "return {'score': 10**400}": "returned the score 1000",
    "return {'acc': 1.0}": "expected a number or a dict",
    "return {'score': 1.0, 'why': ['a']}": "verl makes columns of numbers and texts",
    "raise SystemExit(0)": "raised SystemExit: 0",
    "return 1 / 0": "raised ZeroDivisionError: division by zero at my_reward.py:3",
    "return given['extra']": "raised KeyError: 'extra' at my_reward.py:3; given has extra_info, ",
    "time.sleep(600)": "has not returned within 0.2 s",
}


@pytest.mark.parametrize("body", FAILS)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_reward_that_gives_no_score_fails_for_verl(tmp_path, body, kind):
    body = body.replace("time.sleep", "await asyncio.sleep") if kind == "async def" else body
    config = config_of(tmp_path, f"import asyncio, time\n{kind} compute_score(**given):\n    {body}\n")
    config.reward.timeout = 0.2 if "sleep" in body else 60
    function = loaded_by_verl(config)

    def score():
        result = function(data_source="", solution_str="", ground_truth="", extra_info={"task_id": "task_7"})
        return asyncio.run(result) if kind == "async def" else result

    said = FAILS[body.replace("await asyncio.sleep", "time.sleep")]
    with pytest.raises(reward_file.RewardFailed) as error:
        score()
    pickled = pickle.loads(pickle.dumps(error.value))
    for line in (str(error.value), str(pickled)):
        assert said in line and str(tmp_path / "my_reward.py") in line and "(task_7)" in line and "\n" not in line


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_sample_without_the_metric_that_groups_are_compared_by_is_lost(tmp_path, kind):
    config = config_of(tmp_path, f"{kind} compute_score(p, **given):\n    return {{'score': 1.0, 'price': p}}\n")
    config.algorithm.filter_groups = {"enable": True, "metric": "price"}

    def score(price):
        result = loaded_by_verl(config)(p=price)
        return asyncio.run(result) if kind == "async def" else result

    assert score(2.0) == {"score": 1.0, "price": 2.0}
    for nothing in (float("nan"), None, "x"):
        with pytest.raises(reward_file.RewardFailed, match=r"returned price=.*filter_groups\.metric compares groups"):
            score(nothing)
    config.algorithm.filter_groups.metric = "reward"
    assert score(float("nan")) == {"score": 1.0, "price": None}


def test_the_first_failures_of_a_worker_are_named_in_the_log(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reward_file, "_failures", itertools.count(1))
    function = loaded_by_verl(config_of(tmp_path, "def compute_score(**given):\n    return float('nan')\n"))
    for number in range(reward_file.NAMED_FAILURES + 5):
        with pytest.raises(reward_file.RewardFailed):
            function(data_source="", solution_str="", ground_truth="", extra_info={"task_id": f"task_{number}"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == reward_file.NAMED_FAILURES
    assert lines[3] == (
        f"REWARD FAILED on task_3: the reward compute_score of {tmp_path / 'my_reward.py'} returned the score nan; "
        "expected a finite number"
    )
