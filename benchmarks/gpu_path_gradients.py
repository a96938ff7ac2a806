"""Gradients of the GPU profiles' training against the plain computation, tensor by tensor, on CPU processes.

    PYTHONPATH=. .venv/bin/python benchmarks/gpu_path_gradients.py [--processes 2] [--json FILE]

One batch of episodes of very different length goes through verl's own FSDP2 engine and its own loss, with the loss
settings of hardware=gpu8: seq-mean-token-mean, KL to a reference, entropy. First plainly: rows padded, PyTorch's
attention, log-probabilities from logits, float32. Then as on GPUs: rows packed, attention `varlen`, fused
log-probabilities, dynamic micro-batches, in float32 and in bfloat16. On CPUs the attention is computed a sequence at a
time: the GPU's kernel is what recipe/gpu/selfcheck.py is for.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

MODELS = {
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    "untied_lora": {"tie_word_embeddings": False, "lora_rank": 4},
    "untied_window": {"tie_word_embeddings": False, "use_sliding_window": True, "sliding_window": 24},
}
LENGTHS = ((3, 1), (40, 250), (9, 16), (120, 5), (2, 130), (64, 64), (5, 2), (30, 33))
"""Tokens of prompt and response of each episode."""
BUDGET = 300
"""Tokens of a packed micro-batch, so that there are several."""
TEMPERATURE = 0.7


def make_model(folder: Path, **settings: Any) -> None:
    """A random model in Qwen2's architecture, with grouped-query attention and more rows than its tokenizer has ids."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from recipe.cpu.tiny_policy import make_tokenizer

    tokenizer = make_tokenizer(["some text for the tokenizer"])
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_window_layers=1,  # with a window: the second layer has it
        initializer_range=0.1,  # attention that is not nearly even
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **settings,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_batch(rank: int, processes: int, vocabulary: int) -> Any:
    """This process's share of the episodes, as verl's trainer hands it to its actor; the same for any count."""
    import torch
    from verl.utils import tensordict_utils as tu

    def jagged(parts: list[Any]) -> Any:
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    generator = torch.Generator().manual_seed(1)
    rows: list[dict[str, Any]] = []
    for prompt, response in LENGTHS:
        ids = torch.randint(5, vocabulary, (prompt + response,), generator=generator)
        mask = (torch.rand(response, generator=generator) < 0.7).long()
        mask[0] = 1
        old = -6.5 + torch.randn(response, generator=generator)
        rows.append(
            {
                "input_ids": ids,
                "position_ids": torch.arange(prompt + response),
                "prompts": ids[:prompt],
                "responses": ids[prompt:],
                "response_mask": mask,
                "loss_mask": mask,
                "old_log_probs": old,
                "ref_log_prob": old + 0.1 * torch.randn(response, generator=generator),
                "advantages": torch.randn((), generator=generator).expand(response).clone(),
            }
        )
    own = rows[rank::processes]
    return tu.get_tensordict(
        {name: jagged([row[name] for row in own]) for name in own[0]},
        {"temperature": TEMPERATURE, "global_batch_size": len(rows), "calculate_entropy": True, "pad_token_id": 0},
    )


def settings(model: Path, packed: bool, dtype: str, lora_rank: int) -> Any:
    """`actor_rollout_ref` of stage 3 with hardware=gpu8; not packed: the plain computation; dtype: fp32 or bf16."""
    from recipe.settings import compose

    chosen = {"path": model, "lora_rank": lora_rank}
    if not packed:
        chosen |= {"use_remove_padding": False, "use_fused_kernels": False}
        chosen["override_config.attn_implementation"] = "sdpa"
    overrides = [f"actor_rollout_ref.model.{key}={value}" for key, value in chosen.items()]
    if dtype == "fp32":
        overrides += [
            f"+actor_rollout_ref.actor.fsdp_config.mixed_precision.{name}_dtype=fp32"
            for name in ("param", "reduce", "buffer")
        ]
    return compose("stage3", ["hardware=gpu8", *overrides]).actor_rollout_ref


def gradients(model: Path, packed: bool, dtype: str, lora_rank: int) -> dict[str, Any]:
    """The whole gradient of every trained tensor by name, after one mini-batch. Called by all processes together."""
    import torch
    import torch.distributed as dist
    from transformers import Qwen2ForCausalLM
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine import EngineRegistry
    from verl.workers.utils.losses import ppo_loss

    forward = Qwen2ForCausalLM.forward  # verl puts the fused one into the class
    config = settings(model, packed, dtype, lora_rank)
    actor, model_config = omega_conf_to_dataclass(config.actor), omega_conf_to_dataclass(config.model)
    actor.optim.total_training_steps = 1
    actor.engine.use_remove_padding = model_config.use_remove_padding  # as verl's worker does
    actor.engine.use_fused_kernels = model_config.use_fused_kernels
    try:
        engine = EngineRegistry.new(
            model_type="language_model",
            backend=actor.strategy,
            model_config=model_config,
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
        engine.initialize()
        if lora_rank:  # one half of an adapter starts at 0, and with it the other half's gradient
            torch.manual_seed(2)
            with torch.no_grad():
                for parameter in engine.module.parameters():
                    if parameter.requires_grad:
                        whole = 0.1 * torch.randn(parameter.shape)
                        parameter.copy_(torch.distributed.tensor.distribute_tensor(whole, parameter.device_mesh))
        batch = make_batch(dist.get_rank(), dist.get_world_size(), len(model_config.tokenizer))
        tu.assign_non_tensor(
            batch,
            use_remove_padding=model_config.use_remove_padding,
            use_fused_kernels=model_config.use_fused_kernels,
            use_dynamic_bsz=packed,
            max_token_len_per_gpu=BUDGET,
            micro_batch_size_per_gpu=batch.shape[0],
        )
        with engine.train_mode():
            engine.optimizer_zero_grad()
            engine.forward_backward_batch(batch, partial(ppo_loss, config=actor))
            grad = engine.module.get_output_embeddings().weight.grad
            beyond = 0.0 if grad is None else float(grad.full_tensor()[len(model_config.tokenizer) :].norm())
            assert beyond == 0, f"rows that no token has are trained: {beyond}"
            return {
                name: parameter.grad.full_tensor().clone()
                for name, parameter in engine.module.named_parameters()
                if parameter.grad is not None
            }
    finally:
        Qwen2ForCausalLM.forward = forward


def compare(ours: dict[str, Any], plain: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By tensor: `difference`, its L2 norm relative to the plain gradient's, and `cosine` of the two."""
    assert ours.keys() == plain.keys(), ours.keys() ^ plain.keys()
    found = {}
    for name, expected in plain.items():
        a, b = ours[name].double().flatten(), expected.double().flatten()
        assert b.norm() > 0, f"{name} has no gradient"
        found[name] = {"difference": float((a - b).norm() / b.norm()), "cosine": float(a @ b / a.norm() / b.norm())}
    return found


def work(models: list[str], folder: Path) -> None:
    """What one process does: all comparisons. The first one leaves them in `comparisons.json` in the folder."""
    import torch
    import torch.distributed as dist

    import recipe.cpu.engine  # noqa: F401  verl's engines for CPUs

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for name in models:
        own = dict(MODELS[name])
        lora_rank = own.pop("lora_rank", 0)
        path = folder / f"{name}_{dist.get_rank()}"  # each process makes its own; they are the same
        make_model(path, **own)
        plain = gradients(path, packed=False, dtype="fp32", lora_rank=lora_rank)
        for dtype in ("fp32", "bf16"):
            found[f"{name} {dtype}"] = compare(gradients(path, True, dtype, lora_rank), plain)
    if dist.get_rank() == 0:
        (folder / "comparisons.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def run(models: list[str], processes: int) -> dict[str, Any]:
    """All comparisons, by processes of their own."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        probe.close()
        shared |= {"WORLD_SIZE": str(processes), "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--worker", name, "--models", *models]
        started = []
        for rank in range(processes):
            with (Path(name) / f"{rank}.log").open("w") as log:
                environment = os.environ | shared | {"RANK": str(rank)}
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        status = [process.wait() for process in started]
        if any(status):
            sys.exit(
                f"the processes ended with {status}; the first one's last words:\n"
                + "\n".join((Path(name) / "0.log").read_text().splitlines()[-25:])
            )
        return json.loads((Path(name) / "comparisons.json").read_text())


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Worst tensor by comparison."""
    lines = [f"{'packed, fused, varlen':26} {'tensors':>7} {'largest difference':>19} {'smallest cosine':>16}"]
    for name, tensors in found.items():
        worst = max(tensors, key=lambda tensor: tensors[tensor]["difference"])
        cosine = min(tensor["cosine"] for tensor in tensors.values())
        lines.append(f"{name:26} {len(tensors):7} {tensors[worst]['difference']:19.2e} {cosine:16.6f}  {worst}")
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="data-parallel processes (default: 2)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="file for the differences of every tensor")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work(given.models, given.worker)
    found = run(given.models, given.processes)
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
