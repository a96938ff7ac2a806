"""An environment of a user's, in one file: the documented one works everywhere, a broken one is refused with a line."""

import importlib
import json
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import psutil
import pyarrow.parquet as parquet
import pytest
from support.evaluation import serving
from support.own_environment import example, write_example

import interaction.environment as environments
from data_prep.__main__ import main as prepare_data
from interaction import get_protocol
from interaction.gold import play_gold
from recipe import evaluate
from recipe.curriculum import compose_stage
from recipe.errors import PreflightError
from recipe.preflight.checks import check_environments
from recipe.preflight.data import check_data
from recipe.preflight.reward import check_reward
from recipe.user_code.environment_file import check_file, trial
from rewards import progress

PROTOCOL = get_protocol("think_xml", docs="signature")


def test_the_example_is_short_and_plays_its_gold(tmp_path):
    assert len(example().splitlines()) <= 80
    path = write_example(tmp_path)
    check_file("inventory", str(path))
    environments.register({"inventory": str(path)})
    tasks = environments.load_tasks("inventory")
    assert {task.part for task in tasks.values()} == {"train", "choose", "report"}
    for task in tasks.values():
        record = play_gold(task, PROTOCOL)[1].to_dict()
        assert progress.compute_score("", "", "", {"episode": record})["score"] == 1.0


BROKEN = {
    "no Python": (example(), "x = = 1", "SyntaxError"),
    "ends the process": (example(), "import os; os._exit(3)", "ended its process with status 3"),
    "hangs": ("def begin(self):", "def begin(self):\n        while True: pass", "not played within"),
    "tasks that are none": (
        "return tasks",
        "return None",
        "load_tasks() gives None; expected a list",
    ),
    "attempts that do not": ("return Verdicts(", "return print(", "verdicts() gives None; expected Verdicts"),
    "gold does not pass": ("1 if", "2 if", "its gold does not pass"),
    "gold raises in the environment": (
        "self.stock[good] += change",
        "self.stock[(good,)] = {[good]: change}",
        "its gold does not pass: TypeError: unhashable type: 'list' at inventory.py:56",
    ),
    "facts that are no JSON": (
        "ErrorKind.BAD_ARGUMENTS)",
        "ErrorKind.BAD_ARGUMENTS, facts={'s': {1}})",
        "its facts or texts are no JSON: Object of type set",
    ),
}
"""A piece of the example, what stands in its place, and what is said. All the contract asks for is looked at in
`tests/unit/data_prep/test_own_environment.py`, by the same functions."""
ALONE = ("no Python", "ends the process", "hangs")
"""Cases that a process of their own has to stand; the others are tried in this one, which takes no time."""


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_refused_in_one_line_that_says_what_is_expected(case, tmp_path):
    old, new, said = BROKEN[case]
    assert old in example()
    path = tmp_path / "inventory.py"
    path.write_text(example().replace(old, new))
    with pytest.raises(ValueError) as refused:
        if case in ALONE:
            check_file("inventory", str(path), seconds=8.0)
        else:
            environments.register({"inventory": str(path)})
            trial("inventory")
    assert said in str(refused.value) and "\n" not in str(refused.value)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_environment_may_print_much_and_start_processes_which_end_with_the_trial(tmp_path):
    starts = "[subprocess.Popen(['sleep', '3600'], start_new_session=own).pid for own in (False, True)]"
    path = tmp_path / "inventory.py"
    path.write_text(
        f"{example()}\nimport subprocess, sys\nsys.stdout.write('x' * 2 * 10**8)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(' '.join(map(str, {starts})))\n"
    )
    tracemalloc.start()
    check_file("inventory", str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**7
    end = time.monotonic() + 10
    while not all(map(gone, map(int, (tmp_path / "pids").read_text().split()))):
        assert time.monotonic() < end
        time.sleep(0.05)


def config_of(*overrides):
    return compose_stage("stage2", ["hardware=tiny", *overrides])


def test_settings_of_environments_are_checked_before_a_start(tmp_path):
    own = f"+interaction.environments.inventory={write_example(tmp_path)}"
    check_environments(config_of(own))
    for overrides, said in (
        (["+interaction.environments.inventory=nowhere.py"], "nowhere.py does not exist"),
        (["+interaction.environments.bfcl=mine.py"], "is bfcl_env already"),
        ([own, "+interaction.train.environments.inventory.size=3"], "has no settings, and size was given"),
        (["+interaction.val.environments.elsewhere.size=3"], "unknown environment 'elsewhere'"),
        (["interaction.train.environments.bfcl.augment=1"], "interaction.train.environments.bfcl.augment"),
    ):
        with pytest.raises(PreflightError, match=said):
            check_environments(config_of(*overrides))


def test_its_data_pass_the_checks_of_a_stage(tmp_path):
    path = write_example(tmp_path)
    assert prepare_data(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    rows = parquet.read_table(tmp_path / "data" / "inventory_val.parquet").to_pylist()
    assert {row["extra_info"]["environment"] for row in rows} == {"inventory"}
    assert json.loads(rows[0]["reward_model"]["ground_truth"])[0][0]["name"] in ("add", "take")
    files = [f"data.{key}_files={tmp_path}/data/inventory_{key}.parquet" for key in ("train", "val")]
    config = config_of(f"+interaction.environments.inventory={path}", *files)
    check_environments(config)
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(
        Path(importlib.import_module("recipe").__file__).parent / "config" / "agent_loops.yaml"  # type: ignore[arg-type]
    )
    check_data(config)


def test_it_is_evaluated_through_an_endpoint(tmp_path, capsys):
    path = write_example(tmp_path)
    environments.register({"inventory": str(path)})
    tasks = environments.load_tasks("inventory").values()
    begun = {play_gold(task, PROTOCOL)[0][1]["content"]: task for task in tasks}

    def gold(messages):
        task = begun[messages[1]["content"]]
        calls, _ = task.gold()
        if messages[-1]["content"].startswith("Results:"):
            return PROTOCOL.render_answer("t", "done")
        return PROTOCOL.render_calls("t", calls.calls)

    with serving(gold) as server:
        arguments = ["--environment", str(path), "--endpoint", server.url, "--out", str(tmp_path / "out")]
        assert evaluate.main([*arguments, "--docs", "signature", "--split", "report"]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["overall"]["acc"]["mean"] == 1.0 and found["overall"]["tasks"] == 15 and found["verdicts"] is None
    assert "move" in capsys.readouterr().out
    again = subprocess.run(
        [sys.executable, "-m", "recipe.evaluate", "--records", str(tmp_path / "out")], capture_output=True, text=True
    )
    assert (
        again.returncode == 1
        and "NOTE 15 episodes are left out: their task is not known in environment inventory" in again.stdout
    )


def test_the_reward_is_tried_on_every_environment_of_the_rows(tmp_path):
    path = write_example(tmp_path)
    assert prepare_data(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    config = config_of(
        f"+interaction.environments.inventory={path}",
        f"data.train_files={tmp_path}/data/inventory_train.parquet",
        "reward.custom_reward_function.path=pkg://rewards.step",
    )
    check_environments(config)
    assert config.interaction.environments.inventory == str(path.absolute()), "workers have other working directories"
    with pytest.raises(PreflightError, match="the record of move_0 does not say which calls are gold's"):
        check_reward(config)
    config.reward.custom_reward_function.path = "pkg://rewards.progress"
    check_reward(config)
