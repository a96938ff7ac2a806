"""The data set of docs/your_data.md, as it is used: prepared, audited, evaluated, and looked at before a start."""

from pathlib import Path

import pytest
from support.entries import single_turn, write
from support.own_data import example, write_example

import interaction.environment as environments
from data_prep.__main__ import main as prepare_data
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.settings import CONFIG_DIR, compose


def test_a_start_takes_data_and_settings_and_refuses_a_file_that_was_broken_since(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    assert prepare_data(["--json", str(path), "--out", str(tmp_path), "--docs", "signature"]) == 0
    given = [f"data.{part}_files={tmp_path}/office_{part}.parquet" for part in ("train", "val")]
    given += ["hardware=tiny", "data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    given += [f"actor_rollout_ref.rollout.agent.agent_loop_config_path={CONFIG_DIR}/agent_loops.yaml"]
    given += [f"+interaction.environments.office={path}"]
    config = compose("stage2", [*given, "+interaction.train.environments.office.augment=true"])
    require(data.environments(config))
    require(data.rows(config, [], read := {}))
    require(data.reward(config, [], read))
    broken = [{**example()[0], "ground_truth": [["fly()"], ["mkdir()"]]}, single_turn(ground_truth=[])]
    write(tmp_path, broken, path.name)
    environments.load_tasks.cache_clear()
    environments._module.cache_clear()
    with pytest.raises(PreflightError) as refused:
        require(data.environments(compose("stage2", given)))
    said = str(refused.value)
    assert "interaction.environments.office=" in said and "\n" not in said and "docs/your_data.md" in said
    assert "multi_turn_base_0 (entry 1): ground_truth.0.0: 'fly' is no function" in said
    assert "simple_python_0 (entry 2)" in said
