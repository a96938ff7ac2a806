"""Is the packed attention right on this device? Output and gradients against PyTorch's attention, before any worker.

    python -m recipe.gpu.selfcheck --heads 28 --kv-heads 4 --head-size 128 [--window N] [--device cuda|cpu]

What the kernel does depends on card and driver, so `recipe.preflight.machine` runs this in a process of its own before
a start on GPUs: random rows, the model's heads, in bfloat16, each implementation of recipe/gpu/attention.py against
float32. Prints one JSON object: `device` (null where torch cannot use it, and `cuda` says why) and, by implementation,
whether it is `right` and the figures.
"""

import argparse
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from recipe.gpu.attention import IMPLEMENTATIONS, bounds_of, sequence_by_sequence

Implementation = Callable[..., tuple[torch.Tensor, None]]
"""In the form in which transformers calls it: `recipe.gpu.attention.varlen`."""

LENGTHS = (1, 700, 2, 129, 64, 333, 17)
"""Tokens of the packed sequences: around the kernel's tiles of 64 and 128, and very short ones."""

LIMITS = {torch.bfloat16: 0.03, torch.float32: 1e-4}
"""Largest relative error that rounding explains. PyTorch's own attention on CPUs is off by 0.011 in bfloat16."""


def errors(
    implementation: Implementation,
    heads: int,
    kv_heads: int,
    head_size: int,
    window: int | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, float]:
    """Error of `output` and of the gradients of `query`, `key` and `value`: L2 norm of the difference to PyTorch's
    attention in float32 by that of the latter, in the sequence where it is largest.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    inputs = [torch.randn(1, n, tokens, head_size, generator=generator) for n in (heads, kv_heads, kv_heads)]
    inputs[0] *= torch.linspace(0.5, 4.0, heads)[:, None, None]  # from even attention to attention to single tokens
    weight = torch.randn(tokens, heads, head_size, generator=generator).to(device, dtype)
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None].to(device)

    query, key, value = (x.to(device, dtype).requires_grad_() for x in inputs)
    module = SimpleNamespace(is_causal=True)
    out = implementation(module, query, key, value, None, position_ids=positions, sliding_window=window)[0]
    found = [out[0].detach(), *(x[0].transpose(0, 1) for x in torch.autograd.grad(out[0], (query, key, value), weight))]

    exact = [x.to(device, dtype).float().requires_grad_() for x in inputs]
    q, k, v = (x[0].transpose(0, 1) for x in exact)
    expected = sequence_by_sequence(q, k, v, bounds_of(positions), window=window)
    wanted = [expected.detach(), *(x[0].transpose(0, 1) for x in torch.autograd.grad(expected, exact, weight.float()))]

    worst = {}
    for name, ours, right in zip(("output", "query", "key", "value"), found, wanted, strict=True):
        differences = torch.nan_to_num(ours.float() - right, nan=torch.inf).split(LENGTHS)
        floor = 1e-3 * float(right.norm())  # the gradient of a lone token's query is 0, but for rounding
        parts = zip(differences, right.split(LENGTHS), strict=True)
        worst[name] = max(float(part.norm() / whole.norm().clamp(min=floor)) for part, whole in parts)
    return worst


def judge(implementation: Implementation, **how: Any) -> dict[str, Any]:
    """`right`, whether the errors are those of rounding, and `says`, the errors or the exception in words."""
    try:
        found = errors(implementation, **how)
    except Exception as error:  # a kernel may refuse a card or a head size in any way
        return {"right": False, "says": f"{type(error).__name__}: {error}"}
    limit = LIMITS[how.get("dtype", torch.bfloat16)]
    text = ", ".join(f"{name} {error:.4f}" for name, error in found.items())
    return {"right": max(found.values()) <= limit, "says": f"relative error of {text} (limit {limit})"}


def check(device: str, **shape: Any) -> dict[str, Any]:
    """What the module's docstring says is printed."""
    name = device
    if device == "cuda":
        try:
            name = torch.cuda.get_device_name()
        except (RuntimeError, AssertionError) as error:
            return {"device": None, "cuda": " ".join(str(error).split())}
    judged = {key: judge(function, device=device, **shape) for key, function in IMPLEMENTATIONS.items()}
    return {"device": name, "cuda": torch.version.cuda, **judged}


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m recipe.gpu.selfcheck", description=__doc__, formatter_class=form)
    for name in ("--heads", "--kv-heads", "--head-size"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--window", type=int, help="tokens that a token sees, for models with a sliding window")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    shape = {"heads": given.heads, "kv_heads": given.kv_heads, "head_size": given.head_size, "window": given.window}
    print(json.dumps(check(given.device, **shape)))


if __name__ == "__main__":
    main()
