"""Single-turn tasks in a real training: rows of a mixture, episodes of one message, metrics by category.

One start of all processes, two steps: about two minutes on two cores.
"""

from collections import Counter
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
    guard = ["bfcl_single/live_multiple=1", "--rows", "1", "--val-rows", "3"]
    assert prepare_data(["--out", str(tmp_path / "guard"), "--docs", "signature", "--mixture", *guard]) == 0
    make_tiny_policy(tmp_path / "model")
    stage = train(
        tmp_path,
        f"data.train_files={tmp_path}/data/mixture_train.parquet",
        f"data.val_files={tmp_path}/data/mixture_val.parquet",
        f"environment.guard={tmp_path}/guard/mixture_val.parquet",
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
        assert {f"val_dev/{source}", f"val_test/{source}"} & metrics.keys(), sorted(metrics)
    of_guard = [name for name in metrics if name.startswith("val_") and name.endswith("live_multiple/acc")]
    assert of_guard == ["val_guard/bfcl_single/live_multiple/acc"]
    assert {"val/acc", "val_guard/acc"} <= metrics.keys()
    validated = Counter(line["part"] for line in episodes(stage, "val") if line["step"] == 2)
    assert validated["guard"] == 3 and validated.total() == 4 + 3
