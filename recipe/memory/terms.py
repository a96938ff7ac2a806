"""The formula: what lies on a GPU in each phase of a training step, term by term, in bytes.

The terms follow verl 0.9.1 and PyTorch's FSDP2; `benchmarks/bench_memory.py` runs both on fake tensors and says how far
off each total is. T is the tokens of a micro-batch, H the hidden size, I that of the MLP, Q and K those of a token's
queries and keys, V the vocabulary, L the layers; 2 and 4 are the bytes of bfloat16 and float32.
"""

from dataclasses import dataclass

from recipe.memory.architecture import Architecture
from recipe.memory.passes import Part, backward_pass, forward_pass, trained_parameters
from recipe.memory.settings import Settings

GB = 1e9

TRAINER_CONTEXT = 1.2 * GB
"""CUDA context, NCCL and cuBLAS of a trainer's process. Assumed, not measured."""

ENGINE_CONTEXT = 0.6 * GB
"""CUDA context of vLLM's process, which vLLM does not count into its share. Assumed."""

ENGINE_ASLEEP = 1.2 * GB
"""What vLLM keeps while it sleeps: CUDA graphs and their pool, NCCL. Assumed."""

ENGINE_OTHER = 0.8 * GB
"""CUDA graphs, NCCL and the sampler within vLLM's share. Assumed."""

FRAGMENTS = 0.05
"""Share of passing tensors that PyTorch's allocator reserves and cannot use. Assumed."""


@dataclass(frozen=True)
class Phase:
    """A part of the training step, and what lies on a card at its peak."""

    name: str
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> float:
        """Of all parts."""
        return sum(part.bytes for part in self.parts)


def phases(model: Architecture, settings: Settings) -> tuple[Phase, ...]:
    """The phases of a training step in their order, each at its peak."""
    asleep = (_asleep(settings),) if settings.plays else ()
    awake = settings.engine.utilization * settings.card

    def phase(name: str, *parts: Part) -> Phase:
        contexts = TRAINER_CONTEXT + (ENGINE_CONTEXT if settings.plays else 0)
        context = Part("CUDA context", contexts, "of the trainer and of vLLM")
        return Phase(name, (*_state(model, settings, name), *parts, context))

    def passing(parts: list[Part]) -> list[Part]:
        return [*parts, Part("fragments", FRAGMENTS * sum(part.bytes for part in parts), "of what comes and goes")]

    found = []
    if settings.plays:
        found.append(
            phase("generation", Part("vLLM awake", awake, "gpu_memory_utilization: weights, cache, activations"))
        )
    if settings.old_log_probs:
        found.append(phase("log-probs", *passing(forward_pass(model, settings, settings.forward_tokens)), *asleep))
    if settings.reference:
        found.append(phase("reference", *passing(forward_pass(model, settings, settings.reference_tokens)), *asleep))
    found.append(phase("update", *passing(backward_pass(model, settings, settings.update_tokens)), *asleep))
    if settings.plays:
        found.append(phase("weights", *_transfer(model, settings)))
    return tuple(found)


def training_bytes(model: Architecture, settings: Settings, name: str) -> float:
    """Tensors of the trainer alone at the peak of "update" or "log-probs": what a run on fake tensors measures."""
    tokens = settings.update_tokens if name == "update" else settings.forward_tokens
    parts = (backward_pass if name == "update" else forward_pass)(model, settings, tokens)
    return sum(part.bytes for part in [*_state(model, settings, name), *parts])


def _state(model: Architecture, settings: Settings, phase: str) -> list[Part]:
    """What of the trainer stays on the card: parameters and Adam's moments, and gradients during the update."""
    return [*_policy_state(model, settings, phase), *_critic_state(model, settings)]


def _policy_state(model: Architecture, settings: Settings, phase: str) -> list[Part]:
    if settings.offload_policy:
        return []
    trained = trained_parameters(model, settings)
    whole = model.parameters + (trained if settings.lora_rank else 0)
    size, parts = settings.model_bytes / settings.shards, []
    if not settings.param_offload or phase in ("log-probs", "update"):
        parts.append(Part("parameters", size * whole, f"{settings.model_bytes} bytes each, over the shards"))
    if not settings.optimizer_offload or phase == "update":
        parts.append(Part("Adam", 2 * size * trained, "two moments, from the first step on"))
    if phase == "update":
        parts.append(Part("gradients", size * trained, "sharded; freed after the step"))
    return parts


def _critic_state(model: Architecture, settings: Settings) -> list[Part]:
    """The critic between its own passes, which are not estimated: they come one after another with the policy's."""
    critic = settings.critic
    if critic is None or critic.offload_policy:
        return []
    size, parts = critic.model_bytes * model.parameters / settings.shards, []
    if not critic.param_offload:
        parts.append(Part("critic", size, "a second model with all its parameters"))
    if not critic.optimizer_offload:
        parts.append(Part("critic's Adam", 2 * size, "two moments for all of them"))
    return parts


def _asleep(settings: Settings) -> Part:
    """vLLM while the trainer works."""
    if settings.engine.sleeps:
        return Part("vLLM asleep", ENGINE_ASLEEP, "CUDA graphs and NCCL stay")
    return Part("vLLM awake", settings.engine.utilization * settings.card, "free_cache_engine=false: it keeps all")


def _transfer(model: Architecture, settings: Settings) -> list[Part]:
    """New weights on their way from the trainer to vLLM, whose cache is not there yet."""
    weights = Part("vLLM's weights", engine_weights(model, settings), "bfloat16")
    kept = weights if settings.engine.sleeps else _asleep(settings)
    largest = Part("a whole tensor", settings.model_bytes * model.embedding, "the embedding, gathered")
    bucket = Part("bucket", settings.engine.bucket, "checkpoint_engine.update_weights_bucket_megabytes")
    return [kept, largest, bucket, Part("vLLM's rest", ENGINE_ASLEEP, "CUDA graphs and NCCL")]


def engine_weights(model: Architecture, settings: Settings) -> float:
    """Bytes of vLLM's weights on one card."""
    return 2 * model.parameters / settings.engine.tensor_parallel


def engine_activations(model: Architecture, settings: Settings) -> float:
    """Bytes that vLLM sets aside for the largest batch it may compute: (6 I / tp + 8 H) a token."""
    engine = settings.engine
    return engine.batched_tokens * (6 * model.intermediate / engine.tensor_parallel + 8 * model.hidden)


def cache_tokens(model: Architecture, settings: Settings) -> float:
    """Tokens that the cache of one engine holds; below 0 where vLLM's share is too small for the rest."""
    engine = settings.engine
    rest = engine_weights(model, settings) + engine_activations(model, settings) + ENGINE_OTHER
    return (engine.utilization * settings.card - rest) * engine.tensor_parallel / model.kv_bytes
