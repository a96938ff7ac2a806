"""All algorithms learn a task with a known optimum, by the estimators, losses and settings of a training run."""

import pytest
import torch
from torch import Tensor

from benchmarks.toy_credit import ALGORITHMS, curves

UPDATES = 60


@pytest.fixture(scope="module")
def results() -> dict[str, Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return curves(range(3), UPDATES)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "naive"])
def test_it_comes_close_to_the_best_play(results, name: str):
    assert results[name][:, 0].max() == pytest.approx(1 / 16)
    assert results[name][:, -1].mean() > (0.75 if name == "grpo" else 0.9)


def learning(lines: Tensor) -> float:
    """Expected return, averaged over all updates and seeds: 1 for a policy that is perfect from the start."""
    return lines.mean().item()


def test_credit_for_whole_steps_learns_faster_than_the_discount_at_every_token(results):
    for name in ("tppo", "step_grained", "appo"):
        assert learning(results[name]) > learning(results["naive"]) + 0.1


def test_credit_for_turns_learns_faster_than_one_score_for_the_episode(results):
    assert learning(results["turn_grpo"]) > learning(results["grpo"]) + 0.1
