"""The critic's model with the attention that the configuration names.

verl 0.9.1 loads every critic with flash attention, whatever `critic.model.override_config.attn_implementation` says.
Critic workers get an object of the class below and so import this module, which replaces verl's loader.
"""

from dataclasses import dataclass
from typing import Any

import verl.utils.model
from verl.workers.config import HFModelConfig


@dataclass
class CriticModelConfig(HFModelConfig):
    """verl's configuration of a model; `critic.model._target_` in base.yaml names it."""


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """A token classifier with one label as value model. The head starts at random, the trunk as the policy's."""
    from transformers import AutoModelForTokenClassification

    from recipe.gpu import attention

    attention.register()  # verl imports the policy's external_lib in the process that starts this one, but not in this
    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        torch_dtype=torch_dtype,
        config=model_config,
        attn_implementation=getattr(model_config, "_attn_implementation", None) or "sdpa",
        trust_remote_code=trust_remote_code,
    )


verl.utils.model.load_valuehead_model = load_valuehead_model
