"""An environment of a user's, in one file: the documented one works everywhere, a broken one is refused with a line."""

import importlib
import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from support.own_environment import example, write_example

from data_prep.__main__ import main as prepare_data
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.settings import compose as compose_stage


def config_of(*overrides):
    return compose_stage("stage2", ["hardware=tiny", *overrides])


def test_a_broken_one_is_refused_in_one_line_before_the_start(tmp_path):
    (tmp_path / "inventory.py").write_text(example().replace("self.stock[good] += change", "self.stock[[good]] = 1"))
    with pytest.raises(PreflightError) as refused:
        require(data.environments(config_of(f"+interaction.environments.inventory={tmp_path}/inventory.py")))
    assert "'list' at inventory.py:56" in str(refused.value) and "\n" not in str(refused.value)


def test_its_data_and_the_reward_pass_the_checks_of_a_stage(tmp_path):
    path = write_example(tmp_path)
    assert len(example().splitlines()) <= 80
    assert prepare_data(["--environment", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    rows = parquet.read_table(tmp_path / "data" / "inventory_val.parquet").to_pylist()
    assert {row["extra_info"]["environment"] for row in rows} == {"inventory"}
    assert json.loads(rows[0]["reward_model"]["ground_truth"])[0][0]["name"] in ("add", "take")
    files = [f"data.{key}_files={tmp_path}/data/inventory_{key}.parquet" for key in ("train", "val")]
    config = config_of(f"+interaction.environments.inventory={path}", *files)
    require(data.environments(config))
    assert config.interaction.environments.inventory == str(path.absolute()), "workers have other working directories"
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(
        Path(importlib.import_module("recipe").__file__).parent / "config" / "agent_loops.yaml"  # type: ignore[arg-type]
    )
    require(data.rows(config, []))
    config.reward.custom_reward_function.path = "pkg://rewards.progress"
    require(data.reward(config, []))
    config.reward.custom_reward_function.path = "pkg://rewards.step"
    with pytest.raises(PreflightError, match="the record of move_0 does not say which calls are gold's"):
        require(data.reward(config, []))
