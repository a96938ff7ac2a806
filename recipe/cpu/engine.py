"""FSDP2 engines for `device="cpu"`; imported in training workers only, by `recipe.cpu.platform`.

The engines themselves need no change. One of their helpers assumes CUDA: the reference worker asks for pinned memory.
(The loader of value models asks for flash attention: `recipe.credit.critic_model`.) Two more are slow: `torch.exp`
on CPUs takes ten times as long where its result underflows, which is nearly everywhere for a policy that has learned
something, and both log-probabilities and entropy go through `logsumexp`. `log_softmax` has no such cliff.
"""

import torch
import verl.utils.torch_functional
import verl.workers.engine.fsdp.transformer_impl as fsdp
from verl.workers.engine.base import EngineRegistry

_CPUOffloadPolicy = fsdp.CPUOffloadPolicy
fsdp.CPUOffloadPolicy = lambda pin_memory=False: _CPUOffloadPolicy(pin_memory=False)


def logprobs_from_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of `labels` (...) under `logits` (..., vocabulary)."""
    return torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def entropy_from_logits(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats (...) of the distributions given by `logits` (..., vocabulary)."""
    log_probs = torch.log_softmax(logits, dim=-1)
    return -(torch.softmax(logits, dim=-1) * log_probs).sum(dim=-1)


verl.utils.torch_functional.logprobs_from_logits_v2 = logprobs_from_logits
verl.utils.torch_functional.entropy_from_logits = entropy_from_logits


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPULanguageModelEngine(fsdp.FSDPEngineWithLMHead):
    """Policy and reference model."""


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUValueModelEngine(fsdp.FSDPEngineWithValueHead):
    """Critic."""
