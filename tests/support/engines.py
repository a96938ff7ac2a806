"""Run as a process of its own: the CPU engines and verl's own on the same models and rows, results into a file.

python tests/support/engines.py "[('MODEL', LORA_RANK), ...]" FILE
"""

import ast
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

LENGTHS = ((3, 1), (40, 31), (9, 16), (40, 5), (3, 60), (40, 24))
"""Prompt and response of each row, three rows a micro-batch. Prompts of one length are the same prompt, and their
responses begin alike."""
nested = partial(torch.nested.as_nested_tensor, layout=torch.jagged)


def engine_of(kind: str, path: str, dtype: str = "fp32", **given: Any) -> Any:
    """verl's engine of a model, with such settings of the model."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.base import EngineRegistry

    from recipe.credit.critic_model import CriticModelConfig

    model: Any = CriticModelConfig if kind == "value_model" else HFModelConfig
    mixed = {"param_dtype": dtype, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    torch.manual_seed(3)  # of a critic's head
    settings: dict[str, Any] = {"use_remove_padding": False, "enable_gradient_checkpointing": False, **given}
    settings |= {"path": path, "override_config": {"attn_implementation": "sdpa"}}
    of_engine = {"strategy": "fsdp2", "dtype": "float32", "mixed_precision": mixed, "use_torch_compile": False}
    engine = EngineRegistry.new(
        model_type=kind,
        backend="fsdp2",
        model_config=model(model_type=kind, **settings),
        engine_config=FSDPEngineConfig(**of_engine),
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=1),
        checkpoint_config=CheckpointConfig(save_contents=["model", "optimizer", "extra", "hf_model"]),
    )
    engine.initialize()
    return engine


def policy_of(path: str, lora_rank: int, dtype: str = "fp32") -> Any:
    engine = engine_of("language_model", path, dtype, lora_rank=lora_rank)
    if lora_rank:  # one half of an adapter starts at 0, and with it the other half's gradient
        torch.manual_seed(2)
        with torch.no_grad():
            for name, parameter in engine.module.named_parameters():
                if "lora_B" in name:
                    parameter.to_local().normal_(std=0.05)
    return engine


def rows(whole: bool) -> Any:
    """A batch; its loss masks are of whole rows, as in supervised training, or of responses.

    In row 3 nothing is learned; rows 0 and 4 are a group without differences.
    """
    from verl.utils import tensordict_utils as tu

    generator, made = torch.Generator().manual_seed(1), []
    for number, (prompt, response) in enumerate(LENGTHS):
        ids = torch.randint(5, 2000, (prompt + response,), generator=generator)
        alike = torch.randint(5, 2000, (prompt + response // 4,), generator=torch.Generator().manual_seed(prompt))
        ids[: len(alike)] = alike
        mask = (torch.rand(response, generator=generator) < 0.4).long() * (number != 3)
        old = -7.6 + 0.1 * torch.randn(response, generator=generator)
        row = {"input_ids": ids, "position_ids": torch.arange(len(ids))}
        row |= {"prompts": ids[:prompt], "responses": ids[prompt:], "response_mask": mask}
        row |= {"loss_mask": torch.cat([torch.zeros(prompt).long(), mask]) if whole else mask}
        row |= {"old_log_probs": old, "ref_log_prob": old - 0.2}
        row["teacher_ids"] = ids[:, None] // torch.tensor([1, 2, 3]) + 4
        row["teacher_logprobs"] = -1.1 - 0.1 * torch.cos(row["teacher_ids"].float())
        made.append(row | {"advantages": torch.randn(response, generator=generator) * (number not in (0, 4))})
    columns = {name: nested([row[name] for row in made]) for name in made[0]}
    sizes = {"micro_batch_size_per_gpu": 3, "max_token_len_per_gpu": 60, "global_batch_size": len(made)}
    ways = {"use_remove_padding": False, "use_fused_kernels": False, "use_dynamic_bsz": whole}
    ways |= {"temperature": 0.7, "pad_token_id": 0, "calculate_entropy": True}
    return tu.get_tensordict(columns, {**sizes, **ways})


def of_learned(values: Any, masks: Any) -> torch.Tensor:
    """What an engine says of learned tokens; it stands one place before each."""
    pairs = zip(values.unbind(), masks.unbind(), strict=True)
    return torch.cat([row.roll(1)[-len(mask) :][mask.bool()] for row, mask in pairs])


def answers(engine: Any, loss: Any, whole: bool, on_policy: bool = True, own: bool = False) -> dict[str, torch.Tensor]:
    """All that an engine is asked for: log-probabilities or values, loss, gradients; and its model called directly.

    With `own`, the old log-probabilities of the rows are what the engine says, where the policy has not been updated.
    Where the policy is not the one before the update, what is logged of the loss too, of one pass.
    """
    from verl.utils import tensordict_utils as tu

    with engine.eval_mode():
        said = engine.infer_batch(tu.assign_non_tensor(rows(whole), temperature=0.7 if loss else 1.0))["model_output"]
    if "values" in said:
        return {"values": said["values"].values()}
    found = {name: of_learned(said[name], rows(whole)["loss_mask"]) for name in ("log_probs", "entropy")}
    if loss is None:
        return found
    tokens: list[int] = []
    counting = engine.module.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: tokens.append(int((given[0] > 0).sum()))  # 0 fills up
    )
    with engine.train_mode():
        engine.optimizer_zero_grad()
        given = tu.assign_non_tensor(rows(whole), calculate_entropy=False, **{"on_policy": True} if on_policy else {})
        taught = loss.keywords.get("distillation_config")
        tu.assign_non_tensor(given, distillation_use_topk=taught is not None, distillation_only=taught is not None)
        if on_policy and own:
            pairs = zip(said["log_probs"].unbind(), given["responses"].unbind(), strict=True)
            given["old_log_probs"] = nested([row.roll(1)[-len(response) :] for row, response in pairs])
        if not on_policy:
            tu.assign_non_tensor(given, micro_batch_size_per_gpu=len(LENGTHS))
        output = engine.forward_backward_batch(given, loss)
        found["loss"] = torch.tensor(output["loss"]).sum()
        if not on_policy:
            found |= {name: torch.tensor(each.aggregate()) for name, each in output["metrics"].items()}
        for name, parameter in engine.module.named_parameters():
            if parameter.grad is not None:
                found[f"gradient of {name}"] = parameter.grad.full_tensor().clone()
    counting.remove()
    found["tokens"] = torch.tensor(sum(tokens))
    with torch.no_grad():
        found["logits of all"] = engine.module(input_ids=torch.arange(40).reshape(2, 20)).logits.clone()
    return found


def both(path: str, lora_rank: int) -> dict[str, dict[str, dict[str, torch.Tensor]]]:
    """Of our engines and of verl's, what they answer to each kind of question."""
    import verl.workers.engine.fsdp.transformer_impl as verls
    from verl.utils import tensordict_utils as tu
    from verl.workers.config import ActorConfig, DistillationConfig, DistillationLossConfig, PolicyLossConfig
    from verl.workers.utils.losses import ppo_loss, sft_loss

    import recipe.cpu.engine as engine

    actor = partial(ActorConfig, strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=3, use_dynamic_bsz=False)
    top = DistillationLossConfig(loss_mode="forward_kl_topk", topk=3, use_policy_gradient=False, use_task_rewards=False)
    teaching = DistillationConfig(distillation_loss=top)
    losses = {
        "ppo": (partial(ppo_loss, config=actor()), False),
        "second update": (partial(ppo_loss, config=actor()), False, False),
        "kl": (partial(ppo_loss, config=actor(use_kl_loss=True)), False),
        "sft": (partial(sft_loss, config=actor()), True),
        "taught": (partial(engine.distillation_ppo_loss, config=actor(), distillation_config=teaching), False),
    }
    assert engine._policy_alone(losses["ppo"][0]) and not engine._policy_alone(losses["kl"][0])
    assert not engine._policy_alone(partial(ppo_loss, config=actor(entropy_coeff=0.1))), "entropy is of all rows"
    taught = partial(engine.distillation_ppo_loss, config=actor())
    assert not engine._policy_alone(taught), "a teacher judges all rows"
    other = actor(policy_loss=PolicyLossConfig(loss_mode="kl_cov"))
    assert not engine._policy_alone(partial(ppo_loss, config=other)), "it has a KL of its own"
    found: dict[str, dict[str, dict[str, torch.Tensor]]] = {}
    engine.LONGEST, engine.TOGETHER = 16, 80

    def verls_own(data: Any, **given: Any) -> Any:  # which takes no row that is longer than a pass
        return engine._prepare_micro_batches(tu.assign_non_tensor(data, max_token_len_per_gpu=90), **given)

    sides = {"ours": engine.prepare_micro_batches, "verl's": verls_own}
    for side, verls.prepare_micro_batches in sides.items():
        policy, critic = policy_of(path, lora_rank), engine_of("value_model", path)
        if side == "verl's":
            policy.__class__ = type("Plain", (verls.FSDPEngineWithLMHead,), {"_wanted": None})
            critic.__class__ = verls.FSDPEngineWithValueHead
        found[side] = {name: answers(policy, *given, own=side == "verl's") for name, given in losses.items()}
        found[side]["values"] = answers(critic, None, False)
    verls.prepare_micro_batches = engine.prepare_micro_batches
    found["bfloat16"] = {"ours": answers(policy_of(path, lora_rank, "bf16"), None, False)}
    return found


def decisions() -> None:
    """Which models take trees, and which rows are computed together."""
    import verl.workers.engine.fsdp.transformer_impl as verls
    from verl.utils import tensordict_utils as tu

    import recipe.cpu.engine as engine

    assert not verls.CPUOffloadPolicy(pin_memory=True).pin_memory
    usual = {"_supports_attention_backend": True, "_is_stateful": False, "_attn_implementation": "sdpa"}
    others = {"_supports_attention_backend": False, "_is_stateful": True, "_attn_implementation": "eager"}
    others |= {"attention_dropout": 0.1, "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]}
    for name, value in (("layer_types", None), ("layer_types", ["full_attention"]), *others.items()):
        module = SimpleNamespace(**{**usual, name: value})
        module.config = module
        assert bool(engine._takes_trees(module)) is (others.get(name) != value), name
    for limit, alone, expected in (  # in their order rows have 25, 64, 25, 4, 63 and 1 token of their own
        *((182, False, [[2, 5, 1, 3, 4, 0]]), (181, False, [[2, 5, 1, 3], [4, 0]])),
        *((117, False, [[2], [5, 1, 3], [4, 0]]), (92, False, [[2], [5, 1], [3], [4, 0]])),
        *((60, False, [[2], [5], [1], [3], [4], [0]]), (182, True, [[2, 5, 1]])),
    ):
        data = tu.assign_non_tensor(rows(True), trees=True, policy_alone=alone, max_token_len_per_gpu=limit)
        assert engine.prepare_micro_batches(data)[1] == expected, limit
    data["advantages"] = data["advantages"] * 0
    assert engine.prepare_micro_batches(data)[1] == [[0]], "the shortest"
    with mock.patch("torch.distributed.get_world_size", return_value=2):
        data = tu.assign_non_tensor(rows(True), trees=True)
        with mock.patch.object(engine, "_prepare_micro_batches", lambda data, **_: data["max_token_len_per_gpu"]):
            assert engine.prepare_micro_batches(data) == 71, "as many as the longest row of all workers"


def main() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    import recipe.cpu.engine  # noqa: F401  registers the engines

    decisions()
    cases = ast.literal_eval(sys.argv[1])
    torch.save({path: both(path, lora_rank) for path, lora_rank in cases}, sys.argv[2])


if __name__ == "__main__":
    main()
