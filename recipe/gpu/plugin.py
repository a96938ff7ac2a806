"""What verl loads before it makes a model: `actor_rollout_ref.model.external_lib=recipe.gpu.plugin`.

Three things, done at import because verl calls nothing in it:

* the attention of recipe/gpu/attention.py gets its names in transformers;
* with `use_fused_kernels=true` the output layer stays in FSDP2's root unit. verl 0.9.1 makes it a unit of its own where
  it is not tied to the input embedding, and then reads its weight without calling it, so that the weight is still
  sharded: "aten.mm.default got mixed torch.Tensor and DTensor" (verl's issues 7427 and 7520);
* log-probabilities are those over the tokenizer's ids (recipe/vocabulary.py).

verl loads external libraries where it builds the model's configuration: actor, reference and SFT workers do, and
those of the critic do not (they get the finished object), so recipe/credit/critic_model.py imports this too.
"""

from typing import Any

import verl.utils.fsdp_utils as fsdp_utils

import recipe.vocabulary  # noqa: F401
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
