"""The data set of docs/your_data.md, as it is used: prepared, audited, evaluated, and looked at before a start."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from support.entries import single_turn, write
from support.own_data import example, write_example

import interaction.environment as environments
from data_prep.__main__ import main as prepare_data
from recipe.files import PreflightError
from recipe.preflight import data, require
from recipe.settings import compose as compose_stage

SMALL = ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]


def stage(folder: Path, path: Path, *overrides: str) -> Any:
    """A stage that trains on the file's data, which are made."""
    assert prepare_data(["--json", str(path), "--out", str(folder / "data"), "--docs", "signature"]) == 0
    files = [f"data.{part}_files={folder}/data/{path.stem}_{part}.parquet" for part in ("train", "val")]
    own = f"+interaction.environments.{path.stem}={path}"
    config = compose_stage("stage2", ["hardware=tiny", own, *files, *SMALL, *overrides])
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(
        Path(importlib.import_module("recipe").__file__).parent / "config" / "agent_loops.yaml"  # type: ignore[arg-type]
    )
    return config


def test_a_start_takes_its_data_and_its_settings(tmp_path: Path) -> None:
    config = stage(tmp_path, write_example(tmp_path), "+interaction.train.environments.office.augment=true")
    require(data.environments(config))
    require(data.rows(config, []))
    require(data.reward(config, []))
    assert config.interaction.environments.office == str(tmp_path / "office.json")


def test_a_start_refuses_a_file_that_was_broken_since_and_lists_what_is_wrong(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    config = stage(tmp_path, path)
    write(
        tmp_path, [{**example()[0], "ground_truth": [["fly()"], ["mkdir()"]]}, single_turn(ground_truth=[])], path.name
    )
    environments.load_tasks.cache_clear()
    environments._module.cache_clear()
    with pytest.raises(PreflightError) as refused:
        require(data.environments(config))
    said = str(refused.value)
    assert "interaction.environments.office=" in said and "\n" not in said and "docs/your_data.md" in said
    assert "multi_turn_base_0 (entry 1): ground_truth.0.0: 'fly' is no function" in said
    assert "simple_python_0 (entry 2)" in said
