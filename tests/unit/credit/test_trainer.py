"""The trainer gives our estimators what verl does not: values and ids, and a KL coefficient that survives a resume."""

import itertools
from functools import cache
from pathlib import Path

import pytest
import torch
import verl.trainer.ppo.v1.trainer_base as trainer_base
from omegaconf import OmegaConf
from support.queue import Store, nested
from tensordict import NonTensorStack
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

import recipe.training.trainer
from recipe.credit import GROUPED, estimators
from recipe.credit.kl_control import episode_kl
from recipe.credit.registry import columns_of
from recipe.settings import compose
from recipe.stage.state import TRACKER
from recipe.training.left_out import leave_out_cut_episodes

IDS = [[0, 0, -1, 1, 1, -1, 2, 2, 2], [0, 0, 0, -1, 1], [0, -1, -1, 1, 1, 1], [0, 0, -1, 1]]
"""Messages of four episodes; the last two of each make one user turn."""
REWARDS = [[0, 0.2, 0, 0, -0.1, 0, 0, 0, 1], [0, 0, 0.5, 0, 0], [0.3, 0, 0, 0, 0, 1], [0, 0, 0, 0.1]]


def store(**extra):
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
def composed(algorithm, *overrides):
    return compose("stage2", ["hardware=tiny", f"algorithm={algorithm}", *overrides])


def step(patch, trainer, columns):
    """Has the trainer compute the advantages of these episodes; returns what is logged."""
    for module in (recipe.training.trainer, trainer_base):
        patch.setattr(module, "tq", columns)
    keys, metrics = [f"u{row}_0_0" for row in range(len(columns.columns["uid"]))], dict[str, float]()
    batch = KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id="train")
    assert trainer._compute_advantage(batch, metrics) == "batch"
    return metrics


def compute(patch, columns, name, *overrides, **changes):
    """Advantages of the four episodes, and what is logged."""
    trainer = object.__new__(recipe.training.trainer.CurriculumTrainer)
    trainer.config = OmegaConf.merge(composed(name), OmegaConf.from_dotlist(list(overrides)), changes)
    metrics = step(patch, trainer, columns)
    return columns.written["advantages"], metrics


def padded(columns, name, padding=0):
    return columns.columns[name].to_padded_tensor(padding=padding)


def test_our_estimators_take_the_settings_of_their_files_and_those_that_are_given(monkeypatch):
    names = ("rm_scores", "values", "response_mask")
    rewards, values, mask = given = [padded(store(), name) for name in names]
    steps, turns = (padded(store(), name, -1) for name in ("step_ids", "turn_ids"))
    across, inside = {"gamma": 0.9, "lam": 0.7}, {"gamma_token": 0.95, "lam_token": 0.6}
    raw, default = {"whiten": False}, {"gamma": 0.95, "lam": 0.95}
    changed, of_turns = {**across, "credit": {**inside, **raw}}, {"gamma": 0.9, "norm_adv_by_std_in_grpo": False}
    for name, settings, expected in (
        ("tppo", {}, estimators.gae_bad(*given, steps, **default)),
        ("tppo", changed, estimators.gae_bad(*given, steps, **across, **inside, **raw)),
        ("appo", {}, estimators.gae_step(*given, steps, **default)),
        ("appo", changed, estimators.gae_step(*given, steps, **across, **raw)),
        ("turn_grpo", {}, estimators.turn_grpo(rewards, mask, turns, "aabb")),
        ("turn_grpo", of_turns, estimators.turn_grpo(rewards, mask, turns, "aabb", gamma=0.9, norm_by_std=False)),
    ):
        columns = store()
        if name == "turn_grpo":
            del columns.columns["values"]
        found, _ = compute(monkeypatch, columns, name, algorithm=settings)
        torch.testing.assert_close((found, columns.written["returns"]), expected, msg=f"{name} {settings}")


@pytest.mark.parametrize("estimator", GROUPED)
def test_rollouts_with_equal_rewards_get_no_advantage_at_all(monkeypatch, estimator):
    """Their mean in float32 is another number, and so are the sums of their steps; the other group tells them apart."""
    parts = [[1.0], [0.3, 0.7], [1.1, -0.4, 0.3]]
    for size, value in itertools.product((2, 3, 7, 12, 16), (1e-3, 0.1, 0.2, 0.7, -3.3, 1e3)):
        rows = [torch.tensor([value * part for part in parts[row % 3]]) for row in range(size)]
        rows += [torch.tensor([value]), torch.tensor([value * 1.0001])]
        uids, ones = NonTensorStack(*"a" * size, "b", "b"), nested([torch.ones(len(row)).long() for row in rows])
        columns = Store(uid=uids, response_mask=ones, rm_scores=nested(rows), turn_ids=ones * 0)
        found, _ = compute(monkeypatch, columns, "turn_grpo", f"algorithm.adv_estimator={estimator}")
        assert found.dtype == torch.float32 and not found[:size].any() and found[size:].any(), (size, value)


def test_cut_episodes_leave_the_masks_after_the_advantages_and_only_where_that_is_asked(monkeypatch):
    cut = NonTensorStack({}, {"truncated": True}, {"truncated": False}, {})
    plain, filtered = store(extra_fields=cut), store(extra_fields=cut)
    expected = padded(plain, "response_mask")
    advantages = expected * torch.tensor([[0.3], [-0.3], [0.6], [-0.6]])  # of scores 1.1 and 0.5, 1.3 and 0.1
    for columns, train in ((plain, "true"), (filtered, "false")):
        found, metrics = compute(monkeypatch, columns, "dr_grpo", f"interaction.overlong.train={train}")
        torch.testing.assert_close(found, advantages, msg="the score of a cut episode stays in the mean of its group")
    assert metrics["train/overlong_left_out"] == 0.25 and "loss_mask" not in plain.written
    expected[1] = 0
    for name in ("response_mask", "loss_mask"):
        torch.testing.assert_close(filtered.written[name], expected)
    cut = NonTensorStack(*({"truncated": row < 3} for row in range(4)))
    nothing = Store(response_mask=nested([torch.ones(2)] * 4), extra_fields=cut)
    batch = KVBatchMeta(partition_id="train", keys=[*"abcd"], tags=[{}, {}, {}, {"is_padding": True}])
    some = NonTensorStack({"truncated": True}, {}, {}, {"truncated": True})  # the last is verl's copy of the first
    columns = Store(response_mask=nested([torch.ones(2)] * 4), extra_fields=some)
    assert leave_out_cut_episodes(columns, batch) == pytest.approx(1 / 3)
    with pytest.raises(RuntimeError, match="cut all 3 episodes"):
        leave_out_cut_episodes(nothing, batch)


def test_ids_of_verls_padding_episodes_are_cut_to_their_mask_and_without_ids_that_is_read(monkeypatch):
    """verl's padding copies the columns it does not know from a real episode, and has one token with mask 0."""
    columns = store()
    real = [torch.tensor([int(i >= 0) for i in row]) for row in IDS[:3]]
    columns.columns["response_mask"] = nested([*real, torch.tensor([0])])
    found = columns_of(columns.kv_batch_get(["k"] * 4, "train", ["response_mask", "step_ids", "turn_ids"]))
    assert {*found["step_ids"][3].tolist()} == {*found["turn_ids"][3].tolist()} == {-1}
    assert found["step_ids"][0].tolist() == IDS[0] and found.keys() == {"step_ids", "turn_ids"}
    found = columns_of(store().kv_batch_get(["k"] * 4, "train", ["response_mask", "values"]))
    assert found["values"].tolist() == padded(store(), "values").tolist()
    with_ids, _ = compute(monkeypatch, store(), "appo")
    without = store()
    del without.columns["step_ids"], without.columns["turn_ids"]
    torch.testing.assert_close(compute(monkeypatch, without, "appo")[0], with_ids)
    with pytest.raises(RuntimeError, match="turn_grpo needs turn_ids"):
        compute(monkeypatch, without, "turn_grpo")


@pytest.fixture
def make_trainer(tmp_path, monkeypatch):
    """Makes the trainer as verl does, up to its controller; no workers."""

    def init(self, config):
        self.config, self.replay_buffer = config, OmegaConf.create({"poll_interval": None})
        self.kl_ctrl_in_reward = trainer_base.core_algos.get_kl_controller(config.algorithm.kl_ctrl)

    def make(kind="adaptive", found=0):
        given = ("algorithm.adv_estimator=grpo", "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.horizon=10")
        config = composed("step_grained", *given, f"algorithm.kl_ctrl.type={kind}").copy()
        config.trainer.default_local_dir = f"{tmp_path}/stage/checkpoints"
        trainer = recipe.training.trainer.CurriculumTrainer(config)
        trainer.found = found
        return trainer

    monkeypatch.setattr(PPOTrainerSync, "__init__", init)
    return make


def play(trainer, monkeypatch, nats, padding=0):
    """A step of four episodes with that KL in all, spread over the model's tokens; returns what is logged."""
    masks = [torch.tensor([int(place % 3 != 2) for place in range(length)]) for length in (50, 1, 200, 20)]
    policy = [nats[row] / mask.sum() * mask + 7.0 * (1 - mask) for row, mask in enumerate(masks)]
    masks += [torch.tensor([0])] * padding
    policy += [torch.tensor([9.0])] * padding
    columns = Store(
        uid=NonTensorStack(*[str(row // 2) for row in range(len(masks))]),
        response_mask=nested(masks),
        rm_scores=nested([torch.rand(len(mask)) for mask in masks]),
        old_log_probs=nested(policy),
        ref_log_prob=nested([torch.zeros(len(mask)) for mask in masks]),
    )
    metrics = step(monkeypatch, trainer, columns)
    paid = columns.columns["rm_scores"].to_padded_tensor(0.0) - columns.written["token_level_rewards"]
    assert paid.sum().item() == pytest.approx(metrics["actor/reward_kl_penalty_coeff"] * sum(nats), rel=1e-3, abs=1e-3)
    return metrics


def test_the_coefficient_follows_the_kl_of_an_episode_as_trls_does_whichever_way_it_goes(make_trainer, monkeypatch):
    # after one step of 4 episodes with horizon 10, worked out by hand
    for nats, expected in ((1.2, 0.276), (6.6, 0.312), (400.0, 0.324)):
        trainer = make_trainer()
        assert play(trainer, monkeypatch, [nats] * 4)["actor/reward_kl_penalty_coeff"] == pytest.approx(0.3)
        for _ in range(3):
            metrics = play(trainer, monkeypatch, [nats] * 4)
            assert metrics["actor/reward_kl_penalty_coeff"] == pytest.approx(expected)
            assert metrics["actor/reward_kl_per_episode"] == pytest.approx(nats, rel=1e-5)
            expected *= 1 + min(max(nats / 6.0 - 1, -0.2), 0.2) * 4 / 10  # TRL 0.10.1: AdaptiveKLController.update
    trainer = make_trainer()  # neither the length of an episode counts nor verl's padding
    metrics = play(trainer, monkeypatch, [2.0, 4.0, 6.0, 14.4], padding=2)
    assert metrics["actor/reward_kl_per_episode"] == pytest.approx(6.6)
    trainer.kl_ctrl_in_reward.observe(float("nan"), 4)
    assert trainer.kl_ctrl_in_reward.value == pytest.approx(0.312), "NaN would stay in it"
    nothing = dict.fromkeys(("old_log_probs", "ref_log_prob", "response_mask"), torch.zeros(2, 3))
    assert episode_kl(nothing, "kl") == (0.0, 0)
    # on stored trajectories the mean of the log-ratio is below 0 the further the policy is from the start
    for nats, coefficient in ((-400.0, 0.324), (0.0, 0.276), (60.0, 0.324)):
        trainer = make_trainer()
        OmegaConf.update(trainer.config, "offline.files", "rollouts", force_add=True)
        assert play(trainer, monkeypatch, [nats] * 4)["actor/reward_kl_per_episode"] >= 0
        assert trainer.kl_ctrl_in_reward.value == pytest.approx(coefficient)


def test_a_resumed_run_goes_on_with_the_coefficient_it_had(make_trainer, monkeypatch, capsys):
    def load(self):
        self.global_steps = self.found

    def save(self):
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        assert (folder / "kl_coefficient.json").is_file(), "a kill after verl's last file would lose the coefficient"
        (folder.parent / TRACKER).write_text(str(self.global_steps))

    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", load)
    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save)
    before = make_trainer()
    for before.global_steps in (1, 2, 3):
        play(before, monkeypatch, [400.0] * 4)
        before._save_checkpoint()
    before._save_checkpoint()  # its folder is there
    play(before, monkeypatch, [400.0] * 4)  # of a step that is lost
    after, without, fixed = make_trainer(found=3), make_trainer(found=1), make_trainer("fixed", found=3)  # 1 is gone
    for trainer, said in ((after, "0.3779 of the checkpoint"), (without, "0.3 as at the start"), (fixed, "")):
        trainer._load_checkpoint()
        assert said in capsys.readouterr().out
        metrics = play(trainer, monkeypatch, [1.2] * 4)
        assert metrics["actor/reward_kl_penalty_coeff"] == pytest.approx(0.3 * 1.08 ** (3 * (trainer is after)))
