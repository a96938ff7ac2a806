"""Which models fit which cards: the estimate over models, cards and ways of training, as Markdown tables."""

from dataclasses import replace

from recipe.memory.advice import LORA_RANK, advise
from recipe.memory.architecture import Architecture, load_architecture
from recipe.memory.check import nominal_bytes
from recipe.memory.compose import compose_stage
from recipe.memory.host import host_parts
from recipe.memory.settings import Settings, read_settings
from recipe.memory.terms import GB, cache_tokens

MODELS = ("qwen2.5-1.5b", "qwen3-4b", "qwen2.5-7b", "qwen3-8b")
CARDS = (24, 40, 80, 141)


def cell(model: Architecture, start: Settings, processes_gb: float) -> str:
    """What of `start` has to change, conversations of full length that the caches of a card hold, GB of the host."""
    found = advise(model, start)
    if found is None:
        return "no"
    engine = found.engine
    changes = {
        "offload_policy": found.offload_policy,
        "optimizer_offload": found.optimizer_offload,
        f"tp {engine.tensor_parallel}": engine.tensor_parallel != start.engine.tensor_parallel,
        f"{engine.batched_tokens} batched": engine.batched_tokens != start.engine.batched_tokens,
        f"share {engine.utilization:g}": engine.utilization != start.engine.utilization,
        f"{found.longest} in all": found.longest != start.longest,
        f"budget {found.update_tokens}": found.update_tokens != start.update_tokens,
    }
    said = ", ".join(name for name, changed in changes.items() if changed) or "as it is"
    at_once = int(cache_tokens(model, found) // found.longest) / engine.tensor_parallel
    host = processes_gb + sum(part.bytes for part in host_parts(model, found)) / GB
    return f"{said}; {at_once:g}; {host:.0f}"


def fits_table(stage: str) -> str:
    """A table for 8 GPUs and one for a single GPU, both starting from the profile gpu8."""
    lines = []
    for gpus in (8, 1):
        config = compose_stage(stage, ["hardware=gpu8", f"trainer.n_gpus_per_node={gpus}"])
        processes = compose_stage(stage, [f"hardware=gpu{gpus}"]).launcher.needs.memory_gb
        heads = "".join(f" {card} GB |" for card in CARDS)
        lines += ["", f"| {gpus} GPU{'s' * (gpus > 1)} | |{heads}", "|---|---|" + "---|" * len(CARDS)]
        for name in MODELS:
            for training, rank in (("full", 0), ("LoRA", LORA_RANK)):
                start = replace(read_settings(config, card=0), lora_rank=rank)
                start = replace(start, reference=start.reference and not rank)  # LoRA: the base is the reference
                model = load_architecture(name)
                cells = (cell(model, replace(start, card=nominal_bytes(card)), processes) for card in CARDS)
                lines.append(f"| {name} | {training} | " + " | ".join(cells) + " |")
    return "\n".join(lines[1:])
