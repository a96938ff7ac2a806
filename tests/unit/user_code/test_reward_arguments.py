"""An argument that a reward does not name is refused where it takes no others, and told of where it does."""

import re
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe import rescore
from recipe.errors import PreflightError
from recipe.preflight.reward import check_reward
from recipe.user_code.reward_file import RewardFileError
from recipe.user_code.reward_process import RewardProcess

VERLS = "data_source, solution_str, ground_truth, extra_info=None"
WRAPPED = """
import functools

def once(function):
    @functools.wraps(function)
    def inner({taken}):
        {spent}
        return function(**kwargs)
    return inner

@once
"""


def reward_of(folder: Path, takes: str, head: str = "", kind: str = "def") -> Path:
    path = folder / "my_reward.py"
    path.write_text(f"{head}\n{kind} compute_score({takes}):\n    return 0.0\n")
    return path


def told(path: Path, **arguments: object) -> list[str]:
    lines: list[str] = []
    with RewardProcess(str(path), "compute_score", 60, arguments, lines.append):
        pass
    return lines


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("takes", "there"),
    [
        (f"{VERLS}, scale=1, price=0.1, **kwargs", "its parameters are price, scale"),
        (f"{VERLS}, *, scale=1, price=0.1, **more", "its parameters are price, scale"),
        (f"{VERLS}, **kwargs", "it has none of its own"),
        ("**kwargs", "it has none of its own"),
    ],
)
def test_an_argument_that_goes_into_kwargs_is_told_of_with_the_nearest_parameter_first(tmp_path, kind, takes, there):
    path = reward_of(tmp_path, takes, kind=kind)
    [line] = told(path, prize=1)
    assert line.startswith(f"NOTE the reward compute_score of {path} has no parameter `prize`; {there}")
    assert "misspelt" in line


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_argument_that_is_not_taken_is_refused_before_the_first_call(tmp_path, kind):
    path = reward_of(tmp_path, f"{VERLS}, scale=1, price=0.1", kind=kind)
    with pytest.raises(RewardFileError, match=rf"{path} has no parameter `prize`; its parameters are price, scale\."):
        told(path, prize=1)


def test_of_a_reward_without_parameters_of_its_own_none_is_recommended(tmp_path):
    with pytest.raises(RewardFileError, match=r"it has none of its own\. Leave `prize` out\."):
        told(reward_of(tmp_path, VERLS), prize=1)


def test_arguments_that_a_reward_names_are_given_without_a_word(tmp_path):
    path = reward_of(tmp_path, f"{VERLS}, scale=1, *, price=0.1, **kwargs")
    assert told(path, scale=2, price=1) == [] == told(path)


@pytest.mark.parametrize(
    ("taken", "spent", "arguments", "notes"),
    [
        ("**kwargs", "", {"price": 1}, 0),  # the function under the decorator names it
        ("**kwargs", "kwargs.pop('times')", {"times": 2}, 1),  # the decorator may take it: no reason to refuse
        ("*, times=1, **kwargs", "", {"times": 2}, 0),
    ],
)
def test_of_a_decorated_reward_what_is_taken_by_either_is_not_refused(tmp_path, taken, spent, arguments, notes):
    path = reward_of(tmp_path, f"{VERLS}, price=0.1", head=WRAPPED.format(taken=taken, spent=spent))
    assert len(told(path, **arguments)) == notes


def test_a_callable_whose_parameters_python_cannot_tell_is_left_alone(tmp_path):
    path = tmp_path / "my_reward.py"
    path.write_text("compute_score = dict\n")
    assert told(path, prize=1) == []


def test_a_start_and_rescoring_say_it(tmp_path, monkeypatch, capsys):
    said = r"NOTE the reward compute_score of pkg://rewards\.outcome has no parameter `prize`; .* are price, rule\."
    setting = {"path": "pkg://rewards.outcome", "name": "compute_score", "reward_kwargs": {"prize": 1}}
    reward = {"custom_reward_function": setting, "timeout": 60}
    check_reward(OmegaConf.create({"algorithm": {"filter_groups": {"enable": False}}, "reward": reward}))
    assert re.search(said, capsys.readouterr().out)
    monkeypatch.setattr(sys, "argv", ["rescore", str(tmp_path), "--reward", "pkg://rewards.outcome", "prize=1"])
    with pytest.raises(SystemExit):  # there are no episodes
        rescore.main()
    assert re.search(said, capsys.readouterr().out)


def test_a_start_refuses_what_an_async_reward_does_not_take(tmp_path):
    path = reward_of(tmp_path, f"{VERLS}, price=0.1", kind="async def")
    setting = {"path": str(path), "name": "compute_score", "reward_kwargs": {"prize": 1}}
    reward = {"custom_reward_function": setting, "timeout": 60}
    with pytest.raises(PreflightError, match="has no parameter `prize`; its parameters are price"):
        check_reward(OmegaConf.create({"algorithm": {"filter_groups": {"enable": False}}, "reward": reward}))
