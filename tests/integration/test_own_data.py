"""The data set of docs/your_data.md in a real training: two steps, about two minutes on two cores."""

from pathlib import Path

import pytest
from support.own_data import write_example
from support.short_training import episodes, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps


@pytest.mark.slow
def test_it_trains(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    assert prepare_data(["--json", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    make_tiny_policy(tmp_path / "model")
    stage = train(
        tmp_path,
        f"paths.data={tmp_path}/data",
        f"data.train_files={tmp_path}/data/office_train.parquet",
        f"data.val_files={tmp_path}/data/office_val.parquet",
        f"+interaction.environments.office={path}",
        "+interaction.train.environments.office.augment=true",
        "stage.max_lost_share=1.0",
        "actor_rollout_ref.rollout.n=4",  # eight episodes: log-probabilities are computed eight at a time
        rows=2,
    )
    assert {1, 2} <= set(read_steps(stage))
    lines = episodes(stage)
    assert {line["environment"] for line in lines} == {"office"} and len(lines) == 2 * 2 * 4
    held_out = episodes(stage, "val")
    assert {line["part"] for line in held_out} == {"dev", "test"}
    told = [*lines, *held_out]
    assert {line["episode"]["task_id"] for line in told if line["episode"]["facts"]} == {"multi_turn_base_1"}
