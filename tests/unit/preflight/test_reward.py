"""A reward that cannot work is refused before anything starts, in one line and within its time limit."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError
from recipe.preflight.reward import check_reward, moved, sample_record
from recipe.user_code.reward_process import RewardProcess
from recipe.user_code.reward_result import RewardError

HEAD = (
    "import math, os, re, sys, time\ndef compute_score(data_source, solution_str, ground_truth, extra_info, **more):\n"
)


def config_of(tmp_path: Path, body: str, timeout: Any = 60, head: str = HEAD) -> DictConfig:
    path = tmp_path / "my_reward.py"
    path.write_text(head + "".join(f"    {line}\n" for line in body.splitlines()))
    setting = {"path": str(path), "name": "compute_score"}
    filtering = {"filter_groups": {"enable": False}}
    return OmegaConf.create({"algorithm": filtering, "reward": {"custom_reward_function": setting, "timeout": timeout}})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return math.nan", "returned the score nan; expected a finite number"),
        ("return {'score': -math.inf}", "returned the score -inf"),
        ("return 10**400", "returned the score 1000"),
        ("return None", "returned None; expected a number"),
        ("return {'acc': 1.0}", "expected a number or a dict with the number `score`"),
        ("return {'score': 1.0, 3: 1.0}", "returned 3 as a name"),
        ("return {'score': 1.0, 'why': ['a']}", "verl makes columns of numbers and texts"),
        ("return {'score': 1.0, 'step_scores': [math.nan]}", "step_scores"),
        ("return {'score': 1.0, 'step_scores': object()}", "TypeError: Object of type object|raised TypeError"),
        ("sys.exit(0)", "raised SystemExit: 0"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
        ("os._exit(0)", "ended its process with status 0"),
        ("os.kill(os.getpid(), 11)", r"was ended by signal 11 \(SIGSEGV\)"),
        ("os.close(int(sys.argv[1]))\nos._exit(3)", "ended its process with status 3"),
        ("return compute_score(data_source, solution_str, ground_truth, extra_info)", "raised RecursionError"),
        ("return 'x' * 2**60", "raised MemoryError"),
        ("return {'score': 1.0, 'note': 'x' * 2**27}", "answered with more than"),
    ],
    ids=lambda text: text.splitlines()[0][:40],
)
def test_what_a_reward_must_not_do_is_refused_in_one_line(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(PreflightError, match=said) as error:
        check_reward(config_of(tmp_path, body))
    assert "\n" not in str(error.value)
    assert str(tmp_path / "my_reward.py") in str(error.value)


@pytest.mark.parametrize(
    "stop", ["raise KeyboardInterrupt", "import no_such_module", "import sys; sys.exit(2)", "1 / 0"]
)
def test_what_stops_the_import_is_not_placed_in_a_file_that_is_not_the_users(tmp_path: Path, stop: str) -> None:
    with pytest.raises(PreflightError) as error:
        check_reward(config_of(tmp_path, "return 1.0", head=f"{stop}\n{HEAD}"))
    places = re.findall(r" at (\S+\.py):(\d+)", str(error.value))
    assert set(places) <= {("my_reward.py", "1")} and "\n" not in str(error.value)


MISSPELT = {
    "return extra_info['epsiode']['turns']": r"KeyError: 'epsiode' at my_reward\.py:3; extra_info has episode",
    "return len(extra_info['episode']['turn'])": r"at my_reward\.py:3; extra_info\['episode'\] has turns, ",
    "record = extra_info['episode']\nreturn sum(t['solved'] for t in record['turns'])": r"at my_reward\.py:4; t has ",
    "return extra_info['episode']['turns'][0]['has_gold']": r"has .*facts.* In a record of version 3 it stands under",
    "facts = extra_info['episode']['turns'][0]['facts']\nreturn facts.pop('gold_calls') + facts['gold_calls']": (
        r"; facts has .*\. `gold_calls` is a fact of BFCL's turns\. Another environment gives its own"
    ),
    "return extra_info.episode": r"at my_reward\.py:3; it is a dict: write \['episode'\]",
    "return 1 / 0": r"ZeroDivisionError: division by zero at my_reward\.py:3\. This was on",
    "import json\nreturn json.loads('')": r"JSONDecodeError: .* at my_reward\.py:4\. This was on",
}


@pytest.mark.parametrize("body", MISSPELT)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_mistake_in_a_reward_is_told_with_its_line_and_no_word_of_time(tmp_path: Path, body: str, kind: str) -> None:
    config = config_of(tmp_path, body, head=HEAD.replace("def", kind))
    with pytest.raises(PreflightError, match=MISSPELT[body]) as error:
        check_reward(config) if kind == "def" else call_in_process(tmp_path)
    assert "\n" not in str(error.value) and "timeout" not in str(error.value)


def call_in_process(tmp_path: Path) -> None:
    """An async reward is not called before a start, but when stored episodes are scored again."""
    record = sample_record()
    question = {"data_source": "", "solution_str": "", "ground_truth": "", "extra_info": {"episode": record}}
    try:
        with RewardProcess(str(tmp_path / "my_reward.py"), "compute_score", 60) as reward:
            reward(**question)
    except RewardError as error:
        raise PreflightError(f"{error}.{moved(str(error))} This was on a sample record") from error


def test_a_mistake_at_the_top_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"cannot be imported: NameError: .* at my_reward\.py:2\b"):
        check_reward(config_of(tmp_path, "", head="import os\nlater + 1\n"))


@pytest.mark.parametrize(
    "body",
    ["time.sleep(600)", "while True: pass", "re.match('(a|a)*$', 'a' * 60 + 'b')", "while True: print('x' * 99)"],
)
def test_a_reward_that_never_returns_is_ended_at_its_limit_and_spoken_of_before(
    tmp_path: Path, body: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipe.user_code.reward_process.PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(PreflightError, match=r"took longer than 1 s to return a score.*reward\.timeout"):
        check_reward(config_of(tmp_path, body, timeout=1.0))
    assert time.monotonic() - began < 20
    out = capfd.readouterr().out
    assert "waiting for the reward compute_score of" in out
    assert len(out) < 30_000


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("import sys; sys.exit(0)\n", "cannot be imported: SystemExit: 0"),
        ("import os; os._exit(0)\n", "ended its process with status 0"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1") + "\0\n", "cannot be imported"),
        ("def compute_score(:\n", "cannot be imported: SyntaxError"),
        ("compute_score = 3\n", "has no function `compute_score`"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_in_one_line(tmp_path: Path, head: str, said: str) -> None:
    with pytest.raises(PreflightError, match=said) as error:
        check_reward(config_of(tmp_path, "", head=head))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e10, "60", True, None])
def test_a_time_limit_must_be_a_number_of_seconds(tmp_path: Path, timeout: Any) -> None:
    with pytest.raises(PreflightError, match=r"reward\.timeout=.*; expected the seconds"):
        check_reward(config_of(tmp_path, "return 1.0", timeout=timeout))


def test_what_a_reward_prints_is_passed_on_and_a_flood_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_reward(config_of(tmp_path, "print('hello')\nreturn 1.0"))
    assert capfd.readouterr().out == "hello\n"
    check_reward(config_of(tmp_path, "for _ in range(10000): print('hello')\nreturn 1.0"))
    out = capfd.readouterr().out
    assert len(out) < 21_000
    assert "printed 60000 bytes; the first 20000 are above. In training all of it goes into the log" in out
