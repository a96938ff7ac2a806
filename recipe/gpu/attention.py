"""Attention over packed rows, for transformers: `varlen`, and `varlen_repeat_kv` beside it.

verl with `use_remove_padding=true` puts the sequences of a micro-batch one after another into a single row. Only
position ids, which start at 0 in each, say where they end. transformers' `flash_attention_2` needs a package without
wheels; its `sdpa` builds a mask of tokens x tokens. PyTorch ships a FlashAttention for such rows,
`torch.nn.attention.varlen.varlen_attn`, in half precision on GPUs. Everywhere else each sequence is one
`scaled_dot_product_attention`.

`varlen_repeat_kv` gives every query head a key and value head of its own before the same kernel, for a GPU on which the
kernel's grouped-query backward is wrong: recipe/gpu/selfcheck.py looks, before a start.
"""

import inspect
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
"""torch 2.11 takes fewer key heads than query heads as they are; 2.13 wants to be told."""

NOT_COMPUTED = ("softcap", "s_aux", "sinks")
"""What models pass that want more of their attention than this one computes."""


class Bounds(NamedTuple):
    """Where the sequences of a packed row begin and end."""

    cumulative: Tensor
    """(sequences + 1,) int32: index of the first token of each, and at the end the number of tokens."""
    longest: int
    """Tokens of the longest sequence."""


_last: tuple[weakref.ref[Tensor], int, Bounds] | None = None


def bounds_of(position_ids: Tensor) -> Bounds:
    """The sequences of a packed row, from its position ids (1, tokens).

    All layers of a model ask for the same tensor, and the answer waits for the GPU, so the last one is kept for as
    long as that very tensor lives unchanged.

    Raises:
        ValueError: the ids do not count from 0 in every sequence.
    """
    global _last
    if _last is not None:
        tensor, version, bounds = _last
        if (alive := tensor()) is not None and alive is position_ids and version == alive._version:
            return bounds
    flat = position_ids.reshape(-1)
    starts = torch.nonzero(flat == 0).flatten()
    cumulative = torch.cat([starts, starts.new_tensor([flat.numel()])])
    lengths = cumulative.diff()
    index = torch.arange(flat.numel(), device=flat.device)
    if not len(starts) or starts[0] != 0 or not torch.equal(flat, index - starts.repeat_interleave(lengths)):
        found = f"they must count 0, 1, 2 ..., not {flat[:8].tolist()}. Use sdpa with such positions"
        raise ValueError(f"attn_implementation=varlen reads from position ids where sequences begin: {found}.")
    bounds = Bounds(cumulative.to(torch.int32), int(lengths.max()))
    _last = (weakref.ref(position_ids), position_ids._version, bounds)
    return bounds


def flash(
    query: Tensor, key: Tensor, value: Tensor, bounds: Bounds, scale: float | None = None, window: int | None = None
) -> Tensor:
    """Causal attention within each sequence, by PyTorch's kernel for GPUs.

    Args:
        query: (tokens, heads, head size)
        key, value: (tokens, KV heads, head size); query head h uses KV head h // (heads / KV heads).
        scale: of the products; None: 1 / sqrt(head size).
        window: a token sees itself and the `window - 1` before it; None: all before it.

    Returns:
        (tokens, heads, head size)

    Raises:
        TypeError: float32, which the kernel does not take.
    """
    if query.dtype not in (torch.bfloat16, torch.float16):
        how = "Set fsdp_config.mixed_precision=null, which is bfloat16, or attn_implementation=sdpa"
        raise TypeError(f"attn_implementation=varlen takes half precision on GPUs, not {query.dtype}. {how}.")
    left = -1 if window is None else window - 1
    cumulative, longest = bounds
    return varlen_attn(
        query, key, value, cumulative, cumulative, longest, longest, scale=scale, window_size=(left, 0), **GROUPED
    )


def sequence_by_sequence(
    query: Tensor, key: Tensor, value: Tensor, bounds: Bounds, scale: float | None = None, window: int | None = None
) -> Tensor:
    """The same as `flash` in any precision on any device, with PyTorch's attention for whole sequences."""
    outputs = []
    edges = bounds.cumulative.tolist()
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        q, k, v = (x[start:end].transpose(0, 1)[None] for x in (query, key, value))  # (1, heads, length, head size)
        mask = None
        if window is not None and window < end - start:
            mask = torch.ones(end - start, end - start, dtype=torch.bool, device=query.device).tril().triu(1 - window)
        outputs.append(
            scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )[0].transpose(0, 1)
        )
    return torch.cat(outputs)


def varlen(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: Tensor | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention in the form in which transformers calls it.

    Args:
        query: (rows, heads, tokens, head size); several rows are read as one, so padding needs position 0.
        key, value: (rows, KV heads, tokens, head size)

    Returns:
        (rows, tokens, heads, head size) and None for the weights.

    Raises:
        ValueError: something is asked for that this attention does not compute.
    """
    asked = {
        "an attention mask": attention_mask is not None,
        "dropout": dropout != 0.0,
        "keys from a cache": key.shape[2] != query.shape[2],
        "attention to later tokens": not getattr(module, "is_causal", True),
        "no position ids": position_ids is None or position_ids.numel() != query.shape[0] * query.shape[2],
        **{name: others.get(name) is not None for name in NOT_COMPUTED},
    }
    if wrong := [what for what, found in asked.items() if found]:
        what = f"causal attention over packed rows, and {type(module).__name__} asks for: {', '.join(wrong)}"
        how = "Set use_remove_padding=true, or override_config.attn_implementation=sdpa"
        raise ValueError(f"attn_implementation=varlen is {what}. {how}.")
    assert position_ids is not None
    q, k, v = (x.to(value.dtype).transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    compute = flash if q.is_cuda else sequence_by_sequence
    out = compute(q, k, v, bounds_of(position_ids), scaling, sliding_window)
    return out.unflatten(0, (query.shape[0], query.shape[2])), None


def varlen_repeat_kv(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """`varlen` with a key and a value head for each query head."""
    groups = query.shape[1] // key.shape[1]
    return varlen(module, query, *(x.repeat_interleave(groups, dim=1) for x in (key, value)), *args, **kwargs)


def no_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """The mask that transformers makes for `varlen`: none. A padding mask is handed on, and refused there."""
    return attention_mask


IMPLEMENTATIONS = {"varlen": varlen, "varlen_repeat_kv": varlen_repeat_kv}
"""By the name that `override_config.attn_implementation` gives them."""


def register() -> None:
    """Tell transformers the names in this process."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    for name, function in IMPLEMENTATIONS.items():
        AttentionInterface.register(name, function)
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, no_mask)
