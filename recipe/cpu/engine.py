"""FSDP2 engines for `device="cpu"`; imported in training workers only, by `recipe.cpu.platform`.

The engines themselves need no change. Two of their helpers assume CUDA: the reference worker asks for pinned
memory, and the loader of value models asks for flash attention. Two more are slow: `torch.exp` on CPUs takes ten
times as long where its result underflows, which is nearly everywhere for a policy that has learned something, and
both log-probabilities and entropy go through `logsumexp`. `log_softmax` has no such cliff.
"""

from typing import Any

import torch
import verl.utils.model
import verl.utils.torch_functional
import verl.workers.engine.fsdp.transformer_impl as fsdp
from verl.workers.engine.base import EngineRegistry

_CPUOffloadPolicy = fsdp.CPUOffloadPolicy
fsdp.CPUOffloadPolicy = lambda pin_memory=False: _CPUOffloadPolicy(pin_memory=False)


def load_valuehead_model(local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool) -> Any:
    """A token classifier with one label as value model, with PyTorch's own attention."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        torch_dtype=torch_dtype,
        config=model_config,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )


verl.utils.model.load_valuehead_model = load_valuehead_model


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
