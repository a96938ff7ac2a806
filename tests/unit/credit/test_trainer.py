"""The trainer gives our estimators what verl does not: values and ids."""

import itertools
from functools import cache
from typing import Any

import pytest
import torch
import verl.trainer.ppo.v1.trainer_base as trainer_base
from omegaconf import OmegaConf
from support.queue import Store, nested
from tensordict import NonTensorStack
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

import recipe.training.trainer
from recipe.credit import GROUPED, estimators
from recipe.credit.registry import columns_of
from recipe.settings import compose
from recipe.training.left_out import leave_out_cut_episodes
from recipe.training.trainer import CurriculumTrainer

IDS = [[0, 0, -1, 1, 1, -1, 2, 2, 2], [0, 0, 0, -1, 1], [0, -1, -1, 1, 1, 1], [0, 0, -1, 1]]
"""Messages of four episodes; the last two of each make one user turn."""
REWARDS = [[0, 0.2, 0, 0, -0.1, 0, 0, 0, 1], [0, 0, 0.5, 0, 0], [0.3, 0, 0, 0, 0, 1], [0, 0, 0, 0.1]]


def store(**extra: Any) -> Store:
    ids = [torch.tensor(row) for row in IDS]
    return Store(
        uid=NonTensorStack("a", "a", "b", "b"),
        response_mask=nested([(row >= 0).long() for row in ids]),
        rm_scores=nested([torch.tensor(row) for row in REWARDS]),
        old_log_probs=nested([torch.zeros(len(row)) for row in IDS]),
        values=nested([torch.full((len(row),), 0.3) for row in IDS]),
        step_ids=nested(ids),
        turn_ids=nested([row.clamp(max=1) for row in ids]),
        **extra,
    )


@cache
def composed(algorithm: str) -> Any:
    return compose("stage2", ["hardware=tiny", f"algorithm={algorithm}"])


def compute(monkeypatch: pytest.MonkeyPatch, columns: Store, algorithm: str, *overrides: str) -> tuple[Any, Any]:
    """Advantages of the four episodes, and what is logged."""
    for module in (recipe.training.trainer, trainer_base):
        monkeypatch.setattr(module, "tq", columns)
    trainer, metrics = object.__new__(CurriculumTrainer), dict[str, float]()
    trainer.config = OmegaConf.merge(composed(algorithm), OmegaConf.from_dotlist(list(overrides)))
    keys = [f"u{row}_0_0" for row in range(len(columns.columns["uid"]))]
    batch = KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id="train")
    assert trainer._compute_advantage(batch, metrics) == "batch"
    return columns.written["advantages"], metrics


def padded(columns: Store, name: str, padding: float = 0) -> torch.Tensor:
    return columns.columns[name].to_padded_tensor(padding=padding)


def test_tppo_and_turn_grpo_are_the_estimators_with_the_settings_of_their_files(monkeypatch):
    columns = store()
    found, _ = compute(monkeypatch, columns, "tppo", "algorithm.gamma=0.9")
    rewards, values, mask = (padded(columns, name) for name in ("rm_scores", "values", "response_mask"))
    expected, returns = estimators.gae_bad(rewards, values, mask, padded(columns, "step_ids", -1), gamma=0.9, lam=0.95)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(columns.written["returns"], returns)
    del columns.columns["values"]
    found, _ = compute(monkeypatch, columns, "turn_grpo")
    expected, _ = estimators.turn_grpo(rewards, mask, padded(columns, "turn_ids", -1), list("aabb"))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("estimator", GROUPED)
def test_rollouts_with_equal_rewards_get_no_advantage_at_all(monkeypatch, estimator):
    """Their mean in float32 is another number, and so are the sums of their steps; the other group tells them apart."""
    parts = [[1.0], [0.3, 0.7], [1.1, -0.4, 0.3]]
    for size, value in itertools.product((2, 3, 6, 7, 12, 16), (0.1, 0.2, 0.7, -3.3)):
        rows = [torch.tensor([value * part for part in parts[row % 3]]) for row in range(size)]
        rows += [torch.tensor([value]), torch.tensor([value + 1e-4])]
        columns = Store(
            uid=NonTensorStack(*"a" * size, "b", "b"),
            response_mask=nested([torch.ones(len(row)).long() for row in rows]),
            rm_scores=nested(rows),
            turn_ids=nested([torch.zeros(len(row)).long() for row in rows]),
        )
        found, _ = compute(monkeypatch, columns, "turn_grpo", f"algorithm.adv_estimator={estimator}")
        assert found.dtype == torch.float32 and not found[:size].any() and found[size:].any(), (size, value)


def test_an_estimator_of_a_users_gets_ids_and_values_of_the_batch_by_name(monkeypatch):
    def mine(response_mask, values, turn_ids, step_ids, **_):
        return (values + 10 * turn_ids + 100 * step_ids,) * 2

    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "mine", mine)
    for columns in (store(), store()):
        given = ("algorithm.adv_estimator=mine", "algorithm.credit.grouped=false")
        found, _ = compute(monkeypatch, columns, "grpo", *given)
        values, turns, steps = (padded(columns, name) for name in ("values", "turn_ids", "step_ids"))
        real = padded(columns, "response_mask") > 0
        torch.testing.assert_close(found[real], (values + 10 * turns + 100 * steps)[real])


def test_cut_episodes_leave_the_masks_after_the_advantages_and_only_where_that_is_asked(monkeypatch):
    cut = NonTensorStack(*({"truncated": row == 1} for row in range(len(IDS))))
    plain, filtered = store(extra_fields=cut), store(extra_fields=cut)
    with_all, _ = compute(monkeypatch, plain, "grpo")
    assert "loss_mask" not in plain.written
    found, metrics = compute(monkeypatch, filtered, "grpo", "interaction.overlong.train=false")
    assert metrics["train/overlong_left_out"] == 0.25
    torch.testing.assert_close(found, with_all, msg="the score of a cut episode stays in the mean of its group")
    expected = padded(plain, "response_mask")
    expected[1] = 0
    for name in ("response_mask", "loss_mask"):
        torch.testing.assert_close(filtered.written[name], expected)
    # A step of cut episodes alone stops.
    cut = NonTensorStack(*({"truncated": row < 3} for row in range(4)))
    nothing = Store(response_mask=nested([torch.ones(2)] * 4), extra_fields=cut)
    tags = [{"is_padding": row == 3} for row in range(4)]
    batch = KVBatchMeta(partition_id="train", keys=[f"u{row}_0_0" for row in range(4)], tags=tags)
    with pytest.raises(RuntimeError, match="cut all 3 episodes"):
        leave_out_cut_episodes(nothing, batch)


def test_ids_of_verls_padding_episodes_are_cut_to_their_mask():
    """verl's padding copies the columns it does not know from a real episode, and has one token with mask 0."""
    columns = store()
    real = [torch.tensor([int(i >= 0) for i in row]) for row in IDS[:3]]
    columns.columns["response_mask"] = nested([*real, torch.tensor([0])])
    found = columns_of(columns.kv_batch_get(["k"] * 4, "train", ["response_mask", "step_ids", "turn_ids"]))
    assert found.keys() == {"step_ids", "turn_ids"}
    assert set(found["step_ids"][3].tolist()) == set(found["turn_ids"][3].tolist()) == {-1}
    assert found["step_ids"][0].tolist() == IDS[0]


def test_an_agent_loop_without_ids_is_read_from_the_mask(monkeypatch):
    with_ids, _ = compute(monkeypatch, store(), "appo")
    without = store()
    del without.columns["step_ids"], without.columns["turn_ids"]
    torch.testing.assert_close(compute(monkeypatch, without, "appo")[0], with_ids)
    with pytest.raises(RuntimeError, match="turn_grpo needs turn_ids"):
        compute(monkeypatch, without, "turn_grpo")
