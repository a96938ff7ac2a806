"""Which settings make a run fit its cards: the smallest change that does, found by trying the estimate."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from recipe.memory.architecture import Architecture
from recipe.memory.settings import Settings
from recipe.memory.terms import cache_tokens, phases

STEP = 1024
"""Token budgets are tried in multiples of this."""

SHORTEST = 12288
"""Tokens of prompt and response below which no advice goes: up to 8192 of them are the prompt's."""

LORA_RANK = 32

MARGIN = 0.95
"""Share of a card that advice fills at most. The estimate is a few percent off, and some of it is assumed."""

PACKED: dict[str, Any] = {"packed": True, "fused": True}
MEASURES: tuple[dict[str, Any], ...] = (
    {},
    PACKED,
    PACKED | {"optimizer_offload": True},
    PACKED | {"offload_policy": True},
)
"""What is tried, in this order: each costs more speed than the one before."""

PHASES = {"update_tokens": "update", "forward_tokens": "log-probs", "reference_tokens": "reference"}
"""The phase that each budget of tokens is for."""

FSDP = "actor_rollout_ref.actor.fsdp_config"
KEYS = {
    "packed": "actor_rollout_ref.model.use_remove_padding",
    "fused": "actor_rollout_ref.model.use_fused_kernels",
    "optimizer_offload": f"{FSDP}.optimizer_offload",
    "offload_policy": f"{FSDP}.offload_policy",
    "update_tokens": "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "forward_tokens": "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
    "reference_tokens": "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
}
ENGINE_KEYS = {
    "utilization": "actor_rollout_ref.rollout.gpu_memory_utilization",
    "tensor_parallel": "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "batched_tokens": "actor_rollout_ref.rollout.max_num_batched_tokens",
    "context": "actor_rollout_ref.rollout.max_model_len",
}


def shortfalls(model: Architecture, settings: Settings, share: float = 1.0) -> list[str]:
    """A line for each phase that does not fit into that share of the card, and for a cache that holds not even one
    conversation, with which vLLM does not start."""
    lines = [
        f"{phase.name} takes {phase.bytes / 1e9:.0f} GB of {settings.card / 1e9:.1f}"
        for phase in phases(model, settings)
        if phase.bytes > share * settings.card
    ]
    if settings.plays and (tokens := cache_tokens(model, settings)) < settings.engine.context:
        lines.append(
            f"vLLM's share leaves room for {max(0, int(tokens))} tokens of a conversation's {settings.engine.context}"
        )
    return lines


def _budgets(model: Architecture, settings: Settings) -> Settings | None:
    """With each budget that is too large lowered to the largest one that fits; None where not even one conversation
    fits, which is the smallest budget that verl takes."""
    for field, name in PHASES.items():
        least, most = settings.longest, max(settings.longest, getattr(settings, field))
        budgets = [least, *range((least // STEP + 1) * STEP, most, STEP), *([most] if most > least else [])]
        fitting = bisect_left(budgets, True, key=partial(_too_large, model, settings, field, name))
        if not fitting:
            return None
        settings = replace(settings, **{field: budgets[fitting - 1]})
    return settings


def _too_large(model: Architecture, settings: Settings, field: str, name: str, tokens: int) -> bool:
    """Whether a phase does not fit with that budget; one that this run does not have always fits."""
    changed: dict[str, Any] = {field: tokens}
    tried = phases(model, replace(settings, **changed))
    return any(phase.bytes > MARGIN * settings.card for phase in tried if phase.name == name)


def _engines(settings: Settings) -> Iterator[Settings]:
    """The same run with less for vLLM, then with it spread over more cards."""
    engine = settings.engine
    sizes = [size for size in (1, 2, 4, 8) if engine.tensor_parallel <= size <= settings.gpus * settings.nodes]
    for size in sizes:
        for batched in sorted({engine.batched_tokens, min(engine.batched_tokens, 8192)}, reverse=True):
            for percent in range(round(engine.utilization * 100), 15, -5):
                changed = replace(
                    engine,
                    utilization=percent / 100,
                    tensor_parallel=size,
                    batched_tokens=batched,
                    sequences=engine.sequences * size // engine.tensor_parallel,
                )
                yield replace(settings, engine=changed)


def _fitting(model: Architecture, settings: Settings) -> Settings | None:
    """These settings with budgets and engine changed so that everything fits, or None."""
    lowered = _budgets(model, settings)
    if lowered is None:
        return None
    return next((tried for tried in _engines(lowered) if not shortfalls(model, tried, MARGIN)), None)


def advise(model: Architecture, settings: Settings) -> Settings | None:
    """The first of these that fits: the measures in their order, then the same with shorter conversations."""
    for cut in range(0, settings.longest, 4 * STEP):
        longest = settings.longest - cut  # of the response: the prompt's limit stays
        if cut and longest < SHORTEST:
            return None
        context = min(settings.engine.context, longest) if cut else settings.engine.context
        shorter = replace(settings, longest=longest, engine=replace(settings.engine, context=context))
        for start in _with_critic_moved(shorter):
            for measure in MEASURES:
                if (found := _fitting(model, replace(start, **measure))) is not None:
                    return found
    return None


def _with_critic_moved(settings: Settings) -> Iterator[Settings]:
    """The run as it is and, where it has a critic on the cards, with that on the host."""
    yield settings
    if settings.critic and not settings.critic.offload_policy:
        yield replace(settings, critic=replace(settings.critic, offload_policy=True))


def overrides(before: Settings, after: Settings, prompt: int) -> list[str]:
    """`after` as Hydra overrides of `before`.

    Args:
        prompt: `data.max_prompt_length`, which the longest sequence contains.
    """

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    changes = [(key, getattr(before, field), getattr(after, field)) for field, key in KEYS.items()] + [
        (key, getattr(before.engine, field), getattr(after.engine, field)) for field, key in ENGINE_KEYS.items()
    ]
    lines = [f"{key}={text(new)}" for key, old, new in changes if old != new]
    if before.critic != after.critic:
        lines.append("critic.fsdp.offload_policy=true")
    if before.longest != after.longest:
        lines.append(f"data.max_response_length={after.longest - prompt}")
    return lines
