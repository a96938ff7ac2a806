"""Single-turn tasks in a real training: rows of a mixture, episodes of one message, metrics by category.

One start of all processes, two steps: about two minutes on two cores.
"""

from pathlib import Path

import pytest
from support.short_training import episodes, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps


@pytest.mark.slow
def test_a_mixture_of_categories_trains_and_each_has_metrics_of_its_own(tmp_path: Path) -> None:
    mixed = ["bfcl_single/simple_python=1", "bfcl_single/irrelevance=1", "--rows", "4", "--val-rows", "4"]
    assert prepare_data(["--out", str(tmp_path / "data"), "--docs", "signature", "--mixture", *mixed]) == 0
    make_tiny_policy(tmp_path / "model")
    stage = train(
        tmp_path,
        f"data.train_files={tmp_path}/data/mixture_train.parquet",
        f"data.val_files={tmp_path}/data/mixture_val.parquet",
    )
    lines = episodes(stage)
    assert len(lines) == 2 * 4 * 2 and {line["category"] for line in lines} == {"simple_python", "irrelevance"}
    for line in lines:
        (turn,) = line["episode"]["turns"]
        assert len(turn["steps"]) == 1 and turn["facts"]["has_gold"] == (line["category"] == "simple_python")
    metrics = read_steps(stage)[2]
    for category in ("simple_python", "irrelevance"):
        source = f"bfcl_single/{category}/acc"
        assert f"train/{source}" in metrics
        assert {f"val_choose/{source}", f"val_report/{source}"} & metrics.keys(), sorted(metrics)
