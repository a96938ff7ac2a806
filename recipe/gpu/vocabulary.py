"""The trainer's distribution is the engine's: that over the ids of the tokenizer.

Most models have more rows in their output layer than their tokenizer has ids. verl's engine never samples the others
(`monkey_patch_compute_logits`), but its trainer would normalise over them too. Imported by what workers load before
they make a model: `recipe.cpu.engine` and `recipe.gpu.plugin`. Fused kernels in Triton stay verl's.
"""

from typing import Any

import torch
import verl.utils.experimental.torch_functional as fused
import verl.workers.engine.fsdp.transformer_impl as fsdp

_initialize, _fused = fsdp.FSDPEngineWithLMHead.initialize, fused.FusedLinearForPPO.forward
_ids: int | None = None
"""Of the tokenizer of this process, as fused log-probabilities never call the output layer."""


def initialize(engine: Any) -> None:
    """verl's; afterwards the model has logits of the tokenizer's ids alone."""
    global _ids
    _initialize(engine)
    model = engine.model_config
    if model.model_type == "language_model" and model.tokenizer is not None:
        _ids = size = len(model.tokenizer)
        head = engine.module.get_output_embeddings()
        head.register_forward_hook(lambda _, given, logits: logits[..., :size] if size < logits.shape[-1] else None)


def log_probs(
    layer: Any, hidden_states: torch.Tensor, vocab_weights: torch.Tensor, *given: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's fused log-probabilities and entropies, over the same ids."""
    return _fused(layer, hidden_states, vocab_weights[:_ids], *given, **named)


fsdp.FSDPEngineWithLMHead.initialize = initialize
fused.FusedLinearForPPO.forward = log_probs
