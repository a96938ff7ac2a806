"""All algorithms learn a task with a known optimum, by the estimators, losses and settings of a training run."""

import pytest
import torch

from benchmarks.toy_credit import ALGORITHMS, curves

UPDATES = 60


def test_all_algorithms_learn_and_finer_credit_learns_faster() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = curves(range(3), UPDATES)
    finally:
        torch.set_num_threads(before)
    for name in ALGORITHMS:
        if name != "naive":
            assert results[name][:, 0].max() == pytest.approx(1 / 16)
            assert results[name][:, -1].mean() > (0.75 if name == "grpo" else 0.9), name
    # the mean over all updates and seeds: 1 for a policy that is perfect from the start
    for name in ("tppo", "step_grained", "appo"):
        assert results[name].mean() > results["naive"].mean() + 0.1, "than the discount at every token"
    assert results["turn_grpo"].mean() > results["grpo"].mean() + 0.1, "than one score for the episode"
