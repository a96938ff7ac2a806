"""The terms of one micro-batch through the model, forwards alone or forwards and backwards, in bytes.

Letters as in `recipe.memory.terms`. A pass has two moments that can be its peak: inside a layer, and between the last
layer and the log-probs. Both are written down, and the larger one counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from recipe.memory.architecture import Architecture
from recipe.memory.settings import Settings

FUSED_CHUNK = 512
"""Tokens whose logits verl's fused log-probs make at a time."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and why."""

    name: str
    bytes: float
    why: str


def _sum(parts: Iterable[Part]) -> float:
    return sum(part.bytes for part in parts)


def trained_parameters(model: Architecture, settings: Settings) -> int:
    """Parameters that get gradients: all, or those of the adapters."""
    return model.adapters(settings.lora_rank) if settings.lora_rank else model.parameters


def _layer_tensors(model: Architecture, settings: Settings, train: bool) -> tuple[float, str]:
    """Bytes a token takes inside one layer while its MLP computes, which is the layer's peak."""
    if not train:
        return 6 * model.intermediate + 8 * model.hidden, "its MLP: (6 I + 8 H) T"
    heads = 10 if model.normed_heads else 4  # a norm of queries and keys keeps them in float32 and in bfloat16
    size = 12 * model.intermediate + 16 * model.hidden + heads * (model.queries + model.keys)
    return size, f"computed again, then backwards: (12 I + 16 H + {heads} Q + {heads} K) T"


def _log_probs(model: Architecture, settings: Settings, tokens: float, train: bool) -> list[Part]:
    """From hidden states to log-probs and entropies."""
    frozen = bool(settings.lora_rank)
    if not settings.fused:
        copies = 30 if train and settings.entropy else 10
        parts = [Part("logits", copies * tokens * model.vocabulary, f"{copies} V T: copies in bfloat16 and float32")]
    else:
        copies = 33 if train else 24
        why = f"{FUSED_CHUNK} tokens at a time: {copies} V"
        parts = [Part("logits of a chunk", copies * min(tokens, FUSED_CHUNK) * model.vocabulary, why)]
        if train and not frozen:
            parts.append(Part("a chunk's gradient", 2 * model.embedding, "of the head, before it is added"))
    if train and not frozen:
        parts.append(Part("head's gradient", 2 * model.embedding, "whole"))
    return [*parts, Part("hidden states", (6 if train else 4) * tokens * model.hidden, "of the last layer")]


def _masks(model: Architecture, settings: Settings, tokens: float) -> list[Part]:
    """What attention takes where rows are padded: a mask for every pair of tokens, and repeated keys and values."""
    if settings.packed:
        return []
    mask = 3 * tokens * settings.longest  # boolean, and in bfloat16 for the kernel
    return [Part("attention mask", mask + 4 * tokens * model.queries, "rows are padded: 3 T x the longest row")]


def forward_pass(model: Architecture, settings: Settings, budget: int) -> list[Part]:
    """Log-probs and entropies of a micro-batch of `budget` tokens; nothing is kept for gradients."""
    tokens = budget * settings.padding
    size, why = _layer_tensors(model, settings, train=False)
    layer = [
        Part("gathered layers", 2 * 2 * model.layer, "in bfloat16: the one that computes and the one that is fetched"),
        Part("a layer", size * tokens, why),
    ]
    moment = max(layer, _log_probs(model, settings, tokens, train=False), key=_sum)
    return [_head(model), *moment, *_masks(model, settings, tokens)]


def backward_pass(model: Architecture, settings: Settings, budget: int) -> list[Part]:
    """A forward and a backward pass of `budget` tokens, beside parameters, sharded gradients and Adam's moments."""
    tokens = budget * settings.padding
    size, why = _layer_tensors(model, settings, train=True)
    layer = [
        Part("gathered layers", 2 * 2 * model.layer, "in bfloat16: the one that computes and the one that is fetched"),
        Part("a layer", size * tokens, why),
    ]
    if settings.checkpointing:
        kept = Part("checkpoints", 2 * model.layers * model.hidden * tokens, "the input of each layer: 2 L H T")
    else:
        kept = Part("activations", (model.layers - 1) * size * tokens, "of all layers: no gradient checkpointing")
    if not settings.lora_rank:
        gradient = 2 * model.hidden * model.intermediate
        layer += [
            Part("head's gradient", 2 * model.embedding, "whole until the pass ends"),
            Part("layer's gradients", 4 * model.layer + gradient, "one layer's in float32 on their way, one matrix"),
        ]
    moment = max(layer, _log_probs(model, settings, tokens, train=True), key=_sum)
    parts = [_head(model), kept, *moment, *_masks(model, settings, tokens)]
    if settings.deferred_gradients:
        whole = 4 * trained_parameters(model, settings)
        parts.append(Part("whole gradients", whole, "use_no_sync_for_gradient_accumulation: of every layer"))
    return parts


def _head(model: Architecture) -> Part:
    return Part("gathered head", 2 * model.embedding, "in bfloat16, whole through the pass")
