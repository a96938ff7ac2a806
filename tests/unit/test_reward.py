"""A user's reward: whatever it does, it ends as a finite score or as one line that names the reward and the task."""

import argparse
import asyncio
import json
import math
import pickle
import re
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.reward import get_custom_reward_fn

from interaction import user_file
from interaction.episode_file import append, path_of
from interaction.record import question_of
from recipe import rescore, reward
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.report import page
from recipe.report.episodes import of_evaluation
from recipe.reward import RewardError, checked, sample_record
from recipe.stage.choosing import validation_metrics

KINDS = ("def", "async def")
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
    return {"score": scale * weights.passed * sum(turn["passed"] for turn in extra_info["episode"]["turns"])}
"""


def written(folder: Path, body: str, kind: str = "def", takes: str = "extra_info, **given") -> str:
    path = folder / "my_reward.py"
    path.write_text(f"import asyncio, math, time\n{kind} compute_score({takes}):\n{indent(body, '    ')}")
    return str(path)


def config_of(path: str, timeout: float = 60, **arguments: Any) -> DictConfig:
    setting = {"path": path, "name": "compute_score", "reward_kwargs": arguments or None}
    compared = {"filter_groups": {"enable": False, "metric": "no metric of the reward's"}}
    return OmegaConf.create({"algorithm": compared, "reward": {"custom_reward_function": setting, "timeout": timeout}})


def by_verl(config: DictConfig, **extra: Any) -> Any:
    """The score, as a reward worker of verl gets it."""
    function = get_custom_reward_fn(reward.for_verl(config))
    question = {**question_of(sample_record()), **extra}
    result = function(**question)  # type: ignore[misc]
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def test_a_file_with_a_dataclass_is_run_once_and_called_with_its_arguments_by_us_and_by_verl(tmp_path, monkeypatch):
    path = tmp_path / "my_reward.py"
    path.write_text(f"{DATACLASS}\nopen({str(tmp_path / 'runs')!r}, 'a').write('x')\n")
    config = config_of(str(path), scale=3.0)
    require(data.reward(config, [], {}))
    assert by_verl(config) == {"score": 3.0 * len(sample_record()["turns"])} == by_verl(config)
    assert reward.named(config.reward.custom_reward_function) == (str(path), "compute_score")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for source in (str(path), "my_reward.py", "file://my_reward.py", "~/my_reward.py"):  # workers run elsewhere
        setting = reward.for_verl(config_of(source)).reward.custom_reward_function
        assert reward.named(setting) == (str(path), "compute_score")
    assert (tmp_path / "runs").read_text() == "x"


def test_an_async_reward_stays_one_for_verl_and_has_one_event_loop_outside_of_it(tmp_path):
    body = "loops.add(asyncio.get_running_loop())\nreturn len(loops) * scale"
    path = written(tmp_path, body, "async def", "scale, loops=set(), **given")
    assert by_verl(config_of(path, scale=3.0)) == 3.0
    call = reward.caller(path, "compute_score", 60, {"scale": 1})
    assert call() == call() == 2.0


FAILS = {
    "return math.nan": "returned nan",
    "raise SystemExit(0)": r"raises SystemExit: 0 at my_reward\.py:3",
    "time.sleep(2)": r"has not returned within 0\.2 s",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_that_gives_no_score_costs_verl_one_sample_and_one_line(tmp_path, kind, capsys):
    for number, (body, said) in enumerate(FAILS.items()):
        (folder := tmp_path / str(number)).mkdir()
        body = body.replace("time.sleep", "await asyncio.sleep") if kind == "async def" else body
        config = config_of(written(folder, body, kind), timeout=0.2 if "sleep" in body else 60)
        with pytest.raises(RewardError, match=said) as error:
            by_verl(config, extra_info={"task_id": "task_7"})
        line = str(pickle.loads(pickle.dumps(error.value)))
        assert str(folder / "my_reward.py") in line and "(task_7)" in line and "\n" not in line
        if kind == "def":
            with pytest.raises(PreflightError, match=said):
                require(data.reward(config, [], {}))
    worker, said = user_file.load("worker", Path(reward.__file__)), ["task_7", *["an episode"] * 9]
    given = {"path": written(tmp_path, "return math.nan"), "name": "compute_score", "timeout": 60, "metric": None}
    capsys.readouterr()
    for task in [{"task_id": "task_7"}, *[None] * 11]:
        with pytest.raises(worker.RewardError, match=r"\(task_7\)" if task else r"\(an episode\)"):
            worker.compute_score(given, extra_info=task)
    assert re.findall("REWARD FAILED on (.*): the reward compute_score of", capsys.readouterr().out) == said


def test_an_argument_that_a_reward_does_not_name_is_refused_or_told_of(tmp_path, capsys):
    path = written(tmp_path, "return 0.0", takes="data_source, solution_str, ground_truth, extra_info, price=0.1")
    with pytest.raises(PreflightError, match="takes no argument prize; its parameters are .*price"):
        require(data.reward(config_of(path, prize=1), [], {}))
    require(data.reward(config_of(path, price=1), [], {}))
    (tmp_path / "any").mkdir()
    require(data.reward(config_of(written(tmp_path / "any", "return 0.0"), prize=1), [], {}))
    for text, read in (("a=1", ("a", 1)), ("a=b=c", ("a", "b=c")), ("a=", ("a", ""))):
        assert reward.read_argument(text) == read
    for text in ("a", "=1", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            reward.read_argument(text)
    assert re.findall("NOTE the reward has no parameter `(.*?)`", capsys.readouterr().out) == ["prize"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_without_the_metric_that_groups_are_compared_by_is_lost(tmp_path, kind):
    config = config_of(written(tmp_path, "return {'score': 1.0, 'price': p}", kind, "p, **given"))
    config.algorithm.filter_groups = {"enable": True, "metric": "price"}
    assert by_verl(config, p=2.0) == {"score": 1.0, "price": 2.0}
    for nothing in (math.nan, None, "x"):
        with pytest.raises(RewardError, match=r"filter_groups\.metric=price is no number"):
            by_verl(config, p=nothing)
    for config.algorithm.filter_groups.metric in ("acc", "reward"):  # verl's names of a score; the reward has neither
        assert by_verl(config, p=math.nan) == {"score": 1.0, "price": None}


def test_numbers_of_numpy_and_torch_are_scores_and_a_metric_that_is_not_finite_is_in_no_mean():
    for result in (1, True, np.float32(1), np.bool_(True), np.array(1.0), torch.tensor(1.0)):
        assert checked(result) == 1.0 and type(checked(result)) is float
        values = checked({"score": result, "note": "x", "n": result, "none": None})
        assert values == {"score": 1.0, "note": "x", "n": 1, "none": None}
        json.dumps(values)
    mappings = {}, {"reward": 1.0}, {"score": "1"}, {"score": 1.0, "why": []}, {"score": 1.0, 3: 1.0}, {"score": None}
    others = None, "1.0", b"1", [1.0], object(), np.ones(2), torch.ones(2), -math.inf, 10**400, "a\n" * 999
    for result in (*others, *mappings):
        with pytest.raises(RewardError, match="^returned") as error:
            checked(result)
        assert "\n" not in str(error.value)
    for number in (math.nan, np.float32("nan"), torch.tensor(math.inf)):
        prices = [checked({"score": 1.0, "price": price})["price"] for price in (number, 2.0)]  # type: ignore[index]
        infos = {"score": [1.0, 1.0], "price": prices}
        assert validation_metrics(["bfcl/base"] * 2, infos) == {"val/score": 1.0, "val/price": 2.0}
        found = process_validation_metrics(["bfcl/base"] * 2, ["a", "b"], infos)["bfcl/base"]["price"]
        assert prices == [None, 2.0] and found["mean@1"] == 2.0


PRICED = """
from rewards.metrics import episode_metrics, episode_of
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 1 / 0
def priced(data_source, solution_str, ground_truth, extra_info=None, price=0.01, **kwargs):
    metrics = episode_metrics(episode_of(extra_info))
    return {"score": metrics["progress"] - price * metrics["calls"], **metrics}
"""
STORED = [
    # stage, split, step, category, group, and of each rollout whether it solved the task
    *(("stage1", "train", 1, "miss_func", "c", "000"), ("stage1", "train", 1, "base", "a", "11")),
    *(("stage1", "train", 1, "base", "b", "10"), ("stage1", "train", 2, "base", "a", "00")),
    *(("stage1", "val", 2, "miss_func", "c", "10"), ("stage2", "train", 1, "base", "a", "1")),
]
TABLE = """
stage   split  category   episodes  old mean  new mean  correlation  groups alike
stage1  train  base       6         0.625     0.500     1.000        67%
stage1  train  miss_func  3         0.250     0.000     -            100%
stage1  train  all        9         0.500     0.333     1.000        75%
stage1  val    miss_func  2         0.625     0.500     1.000        -
stage1  val    all        2         0.625     0.500     1.000        -
stage2  train  base       1         1.000     1.000     -            100%
stage2  train  all        1         1.000     1.000     -            100%
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with these episodes; a failed one has a score of 0.25, and some line is cut off."""
    for stage, split, step, category, uid, solved in STORED:
        path = path_of(tmp_path / "run" / stage / "rollouts", split, step)
        for session, passed in enumerate(map(int, solved)):
            episode = sample_record() | {"category": f"multi_turn_{category}"}
            episode["turns"] = [{**turn, "passed": bool(turn["passed"] and passed)} for turn in episode["turns"]]
            head = {"step": step, "uid": uid, "session_id": session, "task_id": uid, "score": 0.25 + 0.75 * passed}
            append(path, {**head, "reward": {}, "episode": episode})
    path.write_text(path.read_text() + '{"cut off')
    return tmp_path / "run"


@pytest.fixture
def rescored(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def rescored(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["recipe.rescore", str(run), "--reward", *arguments])
        rescore.main()
        return capsys.readouterr().out.splitlines()

    return rescored


def test_the_stored_score_comes_back_and_a_price_on_calls_lowers_it(rescored, tmp_path):
    (reward := tmp_path / "priced.py").write_text(PRICED)
    calls = sum(len(step["calls"]) for turn in sample_record()["turns"] for step in turn["steps"])
    assert rescored("pkg://rewards.progress") == TABLE.split("\n")[1:-1]
    for price in (0.01, 0.1):
        line = rescored(str(reward), "--name", "priced", *["price=0.1"] * (price > 0.01))[1].split()
        assert float(line[5]) == pytest.approx(0.5 - price * calls, abs=5e-4)


def test_damaged_lines_cost_no_other_and_an_episode_without_a_score_is_in_no_old_mean(run, rescored):
    (path,) = (run / "stage1" / "rollouts" / "train").glob("*1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3]["score"], lines[4]["score"], lines[6]["score"] = float("nan"), None, 0.0
    damaged = [b"[" * 200_000, b"\xff\xfe", b"null", b'{"task_id": "x", "session_id": 9}']
    for number, odd in enumerate(({"turns": [None]}, {"category": 3}, {"environment": "bfcl"}), 7):
        episode = {**lines[0]["episode"], **odd} if number < 9 else {**odd, "turns": []}
        damaged.append(json.dumps({**lines[0], "session_id": number, "episode": episode}).encode())
    path.write_bytes(b"\n".join([*damaged, *(json.dumps(line).encode() for line in lines)]) + b"\n")
    (path,) = run.glob("stage2/rollouts/*/*.jsonl")
    path.write_text(path.read_text().replace('"score": 1.0', '"score": null', 1))
    note, _, line, *_, last = rescored("pkg://rewards.progress")
    assert note == "NOTE 3 lines are no whole episode" and line.split()[3:] == ["6", "0.375", "0.500", "0.962", "67%"]
    assert last.split()[3:] == ["1", "-", "1.000", "-", "100%"]


def test_a_reward_without_a_score_ends_with_status_1_and_an_async_one_is_awaited(rescored, tmp_path, capsys):
    (path := tmp_path / "bad.py").write_text("def compute_score(**given): raise SystemExit(0)")
    with pytest.raises(SystemExit, match="1"):
        rescored(str(path), "--timeout", "1")
    assert capsys.readouterr().err.count("\n") == 1
    path, takes = tmp_path / "mine.py", "solution_str, extra_info, **given"
    path.write_text(f"async def compute_score({takes}): return bool(solution_str) * (extra_info['split'] == 'train')")
    trained, held_out, _ = (line.split()[2:] for line in rescored(str(path))[3::2])
    assert trained == ["all", "9", "0.500", "1.000", "-", "100%"] and held_out[3] == "0.000"
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()  # an evaluation
    line = {"task_id": "x", "sample": 0, "part": "test", "episode": sample_record()}
    (tmp_path / "run" / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    head, category, whole = rescored(str(path))
    assert whole.split() == ["run", "test", "all", "1", "1.000", "0.000", "-", "-"]
    assert sum(one["score"] for one in of_evaluation(tmp_path / "run")) == 1.0 and page.write(tmp_path / "run").stat()
    (tmp_path / "run" / "episodes.jsonl").unlink()
    with pytest.raises(SystemExit, match="1"):
        rescored(str(path))
