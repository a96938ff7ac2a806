"""The packed attention: sequences of one row do not see each other, and what it does not compute is refused."""

import gc
import itertools
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.varlen import varlen_attn

from recipe.gpu import attention
from recipe.gpu.attention import Bounds, bounds_of, flash, varlen, varlen_repeat_kv

HEADS, KV_HEADS, SIZE = 6, 2, 8
MODULE = SimpleNamespace(is_causal=True)
LENGTHS = [5, 1, 40, 3]


def positions(lengths: list[int]) -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in lengths])[None]


def random_rows(tokens: int) -> list[torch.Tensor]:
    """Query, key and value as transformers hands them over: (1, heads, tokens, size)."""
    torch.manual_seed(0)
    return [torch.randn(1, n, tokens, SIZE, requires_grad=True) for n in (HEADS, KV_HEADS, KV_HEADS)]


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], window: int = 10**6) -> torch.Tensor:
    """Softmax attention with the whole mask written out: (1, heads, tokens, size) to (1, tokens, heads, size)."""
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    index = torch.arange(len(sequence))
    back = index[:, None] - index[None, :]
    seen = (sequence[:, None] == sequence[None, :]) & (back >= 0) & (back < window)
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) / SIZE**0.5).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


def test_output_and_gradients_are_those_of_attention_within_each_sequence():
    for implementation, window in itertools.product((varlen, varlen_repeat_kv), (None, 4, 40)):
        q, k, v = random_rows(sum(LENGTHS))
        out, weights = implementation(MODULE, q, k, v, None, position_ids=positions(LENGTHS), sliding_window=window)
        expected = by_hand(q, k, v, LENGTHS, window or 10**6)
        assert weights is None and out.shape == (1, sum(LENGTHS), HEADS, SIZE)
        weight = torch.randn_like(out)
        ours, theirs = (torch.autograd.grad((x * weight).sum(), (q, k, v)) for x in (out, expected))
        for mine, other in zip((out, *ours), (expected, *theirs), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_bounds_are_those_of_the_tensor_as_it_is():
    for lengths in ([3, 5], [5, 3], [8], [1, 7]):  # the same shape, and usually the same address
        ids = positions(lengths)
        bounds = bounds_of(ids)
        assert bounds.cumulative.diff().tolist() == lengths and bounds.longest == max(lengths)
        del ids, bounds
        gc.collect()
    ids = positions([3, 5])
    bounds_of(ids)
    ids[:] = positions([2, 6])
    assert bounds_of(ids).cumulative.tolist() == [0, 2, 8]


REFUSED = [
    ({"attention_mask": torch.ones(1, 8)}, "an attention mask.*use_remove_padding=true"),
    ({"dropout": 0.1}, "dropout"),
    ({"module": SimpleNamespace(is_causal=False)}, "attention to later tokens"),
    ({"s_aux": torch.ones(HEADS)}, "s_aux"),
    ({"softcap": 30.0}, "softcap"),
    ({"query": torch.randn(1, HEADS, 1, SIZE), "position_ids": torch.zeros(1, 1)}, "keys from a cache"),
]


def test_what_it_does_not_compute_is_refused():
    for ids in ([1, 2, 3], [0, 1, 3], [0, 1, 1]):
        with pytest.raises(ValueError, match="varlen reads from position ids"):
            bounds_of(torch.tensor([ids]))
    q, k, v = random_rows(8)
    call = {"module": MODULE, "query": q, "key": k, "value": v, "attention_mask": None, "position_ids": positions([8])}
    for change, words in REFUSED:
        with pytest.raises(ValueError, match=words):
            varlen(**(call | change))


@pytest.mark.parametrize("window", [None, 4])
def test_the_gpu_kernel_is_called_in_its_own_form(window, monkeypatch: pytest.MonkeyPatch):
    """Without a GPU: shapes and types of PyTorch's own function, forward and backward, on tensors without numbers."""
    seen = []
    monkeypatch.setattr(attention, "varlen_attn", lambda *a, **k: seen.append(k) or varlen_attn(*a, **k))
    with FakeTensorMode(allow_non_fake_inputs=True):
        empty = {"dtype": torch.bfloat16, "requires_grad": True}
        q, k, v = (torch.empty(49, heads, SIZE, **empty) for heads in (HEADS, KV_HEADS, KV_HEADS))
        bounds = Bounds(torch.empty(5, dtype=torch.int32), 40)
        out = flash(q, k, v, bounds, 0.5, window)
        assert out.shape == q.shape and out.dtype == torch.bfloat16
        out.sum().backward()
        assert k.grad is not None and k.grad.shape == k.shape
        with pytest.raises(TypeError, match="half precision.*fsdp_config.mixed_precision=null"):
            flash(q.float(), k.float(), v.float(), bounds)
    assert (seen[0]["window_size"], seen[0]["scale"]) == ((-1, 0) if window is None else (3, 0), 0.5)
