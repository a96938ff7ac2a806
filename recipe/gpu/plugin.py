"""What verl loads before it makes a model: `actor_rollout_ref.model.external_lib=recipe.gpu.plugin`.

Three things are done at import:

* the attention of recipe/gpu/attention.py gets its names in transformers;
* with `use_fused_kernels=true` the output layer stays in FSDP2's root unit. verl 0.9.1 makes an untied one its own unit
  and reads its weight without calling it: "aten.mm.default got mixed torch.Tensor and DTensor" (verl issue 7427);
* log-probabilities are those over the tokenizer's ids (recipe/gpu/vocabulary.py).
"""

from typing import Any

import verl.utils.fsdp_utils as fsdp_utils

import recipe.gpu.vocabulary  # noqa: F401
from recipe.gpu import attention

_select = fsdp_utils._select_fsdp2_wrap_targets


def wrap_targets(model: Any, layer_classes: list[str]) -> list[Any]:
    """verl's choice of modules that become FSDP2 units, without an output layer that fused kernels read."""
    targets = _select(model, layer_classes)
    if getattr(model, "_verl_fused_kernels_backend", None) is None:
        return targets
    head = model.get_output_embeddings()
    return [module for module in targets if module is not head]


fsdp_utils._select_fsdp2_wrap_targets = wrap_targets
attention.register()
