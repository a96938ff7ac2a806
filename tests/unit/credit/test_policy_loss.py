"""The loss with one ratio a step, against verl's token loss and by hand; and what verl makes of a critic's settings."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
import verl.utils.model
from tensordict import TensorDict
from transformers import AutoConfig
from verl.trainer.distillation import losses
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, get_policy_loss_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.workers.config import FSDPActorConfig

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.credit.critic_model import CriticModelConfig
from recipe.credit.policy_loss import StepPolicyLossConfig
from recipe.settings import compose


def actor(ratio_norm="token_mean", **batch):
    given = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, "ppo_micro_batch_size_per_gpu": 1}
    kind = StepPolicyLossConfig(loss_mode="appo_step", ratio_norm=ratio_norm)
    config = FSDPActorConfig(strategy="fsdp2", policy_loss=kind, rollout_n=1, **given)
    config.global_batch_info.update(batch)
    return config


def loss(old, new, advantages, mask, mode="token-mean", weights=None, **options):
    return get_policy_loss_fn("appo_step")(old, new, advantages, mask.bool(), mode, actor(**options), weights)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_with_one_token_a_step_it_is_verls_ppo_loss(mode):
    mask = torch.tensor([[1, 0, 1, 0, 0, 1], [0, 1, 0, 1, 0, 0]])
    torch.manual_seed(0)
    batches = ({}, {"dp_size": 2, "batch_num_tokens": 7, "global_batch_size": 3})
    for batch, far, weights in itertools.product(batches, [1, 20] * 5, (None, torch.rand(2, 6))):
        old, new, advantages = torch.randn(3, 2, 6) * far
        theirs, metrics = compute_policy_loss_vanilla(old, new, advantages, mask.bool(), mode, actor(**batch), weights)
        given = [tensor.masked_fill(mask == 0, math.nan) for tensor in (old, new, advantages)]  # of the environment
        ours, our_metrics = loss(*given, mask, mode, weights, **batch)
        torch.testing.assert_close(ours, theirs)
        assert our_metrics == pytest.approx(metrics, abs=1e-6)


def test_a_steps_ratio_and_weight_depend_neither_on_how_its_tokens_share_it_nor_on_their_number():
    mask, old, advantages = torch.ones(1, 4), torch.zeros(1, 4), torch.ones(1, 4)
    even, uneven = torch.full((1, 4), 0.02), torch.tensor([[0.08, 0.0, -0.02, 0.02]])
    for (ratio_norm, moved), new in itertools.product((("sum", 0.08), ("token_mean", 0.02)), (even, uneven)):
        found, metrics = loss(old, new, advantages, mask, ratio_norm=ratio_norm)
        assert (found.item(), metrics["actor/ppo_kl"]) == pytest.approx((-math.exp(moved), -moved))
    mask, zeros = torch.tensor([[1] + [0] + [1] * 8]), torch.zeros(1, 10)
    advantages = torch.tensor([[2.0] + [0.0] + [0.5, 1.5] * 4])
    assert loss(zeros, zeros, advantages, mask)[0].item() == pytest.approx(-1.5)
    weights = torch.tensor([[2.0] + [9.0] + [0.25, 0.75] * 4])  # of a step: the mean over its tokens
    assert loss(zeros, zeros, advantages, mask, weights=weights)[0].item() == pytest.approx(-(4.0 + 0.5) / 2)


def test_the_loss_of_padding_alone_is_zero():
    zeros = torch.zeros(2, 4)
    value, _ = loss(zeros, zeros, zeros, zeros, dp_size=1, batch_num_tokens=50, global_batch_size=8)
    assert value.item() == 0
    for mask in (zeros, torch.nested.as_nested_tensor([*zeros], layout=torch.jagged)):
        found = losses.compute_distillation_loss_range(torch.full((2, 4), math.nan), mask)
        assert {metric.aggregate() for metric in found.values()} == {0.0}
    shown = {"prompts": zeros[:, :1], "responses": zeros, "attention_mask": torch.ones(2, 5, dtype=torch.int)}
    output = dict.fromkeys(("distillation_losses", "student_mass", "teacher_mass"), torch.ones(10))
    of = SimpleNamespace(loss_mode="forward_kl_topk", loss_max_clamp=None, use_policy_gradient=False)
    actor = SimpleNamespace(loss_agg_mode="token-mean", global_batch_info={}, loss_scale_factor=None)
    likely, names = losses.get_distillation_loss_fn(of.loss_mode), []
    for mask in (zeros, torch.ones(2, 4)):
        data = TensorDict({**shown, "response_mask": mask}, batch_size=2)
        value, _ = likely(config=None, distillation_config=None, model_output=output, data=data)
        assert value.shape == (2, 4) and (data["response_mask"] == mask).all()
        data.set_non_tensor("dp_size", 1).set_non_tensor("batch_num_tokens", 8).set_non_tensor("global_batch_size", 2)
        names.append([*losses.distillation_loss(actor, SimpleNamespace(distillation_loss=of), output, data)[1]])
    assert names[0] == names[1], "verl joins them over micro-batches"


def test_verl_builds_the_critic_which_follows_the_actor_and_keeps_to_the_attention_that_is_named(tmp_path):
    make_tiny_policy(tmp_path)
    mixed = {"param_dtype": "bfloat16", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    for name, hardware in itertools.product(("step_grained", "appo"), ("cpu", "gpu8")):
        given = [f"hardware={hardware}", f"algorithm={name}", f"actor_rollout_ref.model.path={tmp_path}"]
        config = compose("stage2", given)
        if hardware == "cpu":
            config.launcher.precision = "bfloat16"
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        critic, actor = omega_conf_to_dataclass(config.critic), omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert isinstance(critic.model, CriticModelConfig) and isinstance(actor.policy_loss, StepPolicyLossConfig)
        assert critic.model.hf_config._attn_implementation == {"cpu": "sdpa", "gpu8": "varlen"}[hardware]
        assert critic.engine.mixed_precision == actor.engine.mixed_precision == {"cpu": mixed, "gpu8": None}[hardware]
    settings = AutoConfig.from_pretrained(tmp_path, attn_implementation="eager", num_labels=1)
    loaded = verl.utils.model.load_valuehead_model(str(tmp_path), torch.float32, settings, False)
    assert loaded.config._attn_implementation == "eager"
