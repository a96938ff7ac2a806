"""The data set of docs/your_data.md in a real training, guarded by single-turn tasks: two minutes on two cores."""

from collections import Counter
from pathlib import Path

import pytest
from support.own_data import write_example
from support.short_training import episodes, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps


@pytest.mark.slow
def test_it_trains_and_what_stands_guard_has_metrics_of_its_own(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    assert prepare_data(["--json", str(path), "--out", str(tmp_path / "data"), "--docs", "signature"]) == 0
    guard = ["bfcl_single/live_multiple=1", "--rows", "1", "--val-rows", "3"]
    assert prepare_data(["--out", str(tmp_path / "guard"), "--docs", "signature", "--mixture", *guard]) == 0
    make_tiny_policy(tmp_path / "model")
    stage = train(
        tmp_path,
        f"data.train_files={tmp_path}/data/office_train.parquet",
        f"data.val_files={tmp_path}/data/office_val.parquet",
        f"environment.guard={tmp_path}/guard/mixture_val.parquet",
        f"+interaction.environments.office={path}",
        "+interaction.train.environments.office.augment=true",
        "stage.max_lost_share=1.0",
        "actor_rollout_ref.rollout.n=4",  # eight episodes: log-probabilities are computed eight at a time
        rows=2,
    )
    lines, held_out = episodes(stage), episodes(stage, "val")
    assert {line["environment"] for line in lines} == {"office"} and len(lines) == 2 * 2 * 4
    parts = Counter(line["part"] for line in held_out if line["step"] == 2)
    assert parts.keys() == {"dev", "test", "guard"} and parts["guard"] == 3
    told = [line["episode"] for line in [*lines, *held_out] if line["environment"] == "office"]
    assert {episode["task_id"] for episode in told if episode["facts"]} == {"multi_turn_base_1"}
    metrics = read_steps(stage)[2]
    of_guard = [name for name in metrics if name.startswith("val_") and name.endswith("live_multiple/acc")]
    assert of_guard == ["val_guard/bfcl_single/live_multiple/acc"] and {"val/acc", "val_guard/acc"} <= metrics.keys()
