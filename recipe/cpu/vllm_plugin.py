"""vLLM plug-in for the CPU profile, loaded through the `vllm.general_plugins` entry point in every vLLM process.

On CPUs vLLM packs the weights of linear layers, and leaves an empty parameter behind, which the trainer could not write
new weights into. Here they are kept beside the packed ones, which verl has made anew after each update.

vLLM draws a token with a random number for each word of the vocabulary, which took 45 of the 200 ms of a step of 64
requests. Here one number decides, by the cumulated probabilities. Its norms are several of torch's operations, although
it has a kernel of its own for them. And where the trainer sends the weights it first draws random ones, once for each
module around a tensor: 6 s of a start for 135 million.
"""

import os
from typing import Any

import torch

BLOCK = 128
"""Words whose probabilities are summed first: only within one block they are cumulated."""


def draw(probabilities: torch.Tensor, generators: dict[int, torch.Generator]) -> torch.Tensor:
    """A word (rows) for each row of probabilities (rows, words), which need not sum to 1 exactly.

    Args:
        generators: of the rows that have one of their own; the others take torch's.
    """
    rows, words = probabilities.shape
    number = torch.rand(rows, 1)
    for row, generator in generators.items():
        number[row] = torch.rand(1, generator=generator)
    blocks = torch.nn.functional.pad(probabilities, (0, -words % BLOCK)).view(rows, -1, BLOCK)
    ends, every = blocks.sum(-1).cumsum(-1), torch.arange(rows)
    wanted = number * ends[:, -1:]
    block = _first_above(ends, wanted)
    before = ends.gather(1, block) - blocks[every, block[:, 0]].sum(-1, keepdim=True)
    return (block * BLOCK + _first_above(blocks[every, block[:, 0]].cumsum(-1), wanted - before))[:, 0]


def _first_above(ends: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where (rows, 1) a row's cumulated sums first pass what is wanted; rounding may have it at or above the last."""
    below = torch.nextafter(ends[:, -1:], torch.zeros(()))
    return torch.searchsorted(ends, torch.minimum(wanted, below), right=True)


def forward_cpu(self: Any, logits: torch.Tensor, generators: dict, k: Any, p: Any) -> tuple[Any, Any]:
    """`TopKTopPSampler.forward_cpu`: tokens (rows), and what `logprobs_mode` asks for of all words (rows, words)."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    logits = apply_top_k_top_p(logits, k, p)
    log_probs = logits.log_softmax(dim=-1, dtype=torch.float32)
    asked = {"processed_logits": logits, "processed_logprobs": log_probs}.get(self.logprobs_mode)
    return draw(log_probs.exp(), generators), asked


def norm(self: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    """`RMSNorm.forward_cpu`; as on GPUs, what is added goes on in the tensors that are given."""
    if not self.has_weight or self.variance_size_override is not None:
        return self.forward_native(x, residual)
    if residual is None:
        torch.ops._C.rms_norm(found := torch.empty_like(x), x, self.weight.data, self.variance_epsilon)
        return found
    torch.ops._C.fused_add_rms_norm(x, residual, self.weight.data, self.variance_epsilon)
    return x, residual


def no_weights(module: torch.nn.Module, *given: Any, **named: Any) -> None:
    """`initialize_dummy_weights` of a module and, by further calls, of those in it: zeros until the trainer sends."""
    for tensor in module.parameters(recurse=False):
        tensor.data.zero_()


def install() -> None:
    """Keep the weights, draw tokens and norm as above. Does nothing unless `VERL_PLATFORM=cpu`."""
    if os.environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return
    from vllm.model_executor.layers import utils
    from vllm.model_executor.layers.layernorm import RMSNorm
    from vllm.model_executor.model_loader import dummy_loader
    from vllm.v1.sample import sampler
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    pack = utils.dispatch_cpu_unquantized_gemm
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: pack(layer, remove_weight=False)
    TopKTopPSampler.forward_cpu = forward_cpu
    RMSNorm.forward_cpu = norm
    dummy_loader.initialize_dummy_weights = no_weights
    sampler.batched_count_greater_than = lambda x, values: values.new_zeros(len(x), dtype=torch.int64)  # ranks
