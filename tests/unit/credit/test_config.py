"""What verl makes of the settings of a critic."""

import itertools
from pathlib import Path

import torch
import verl.utils.model
from transformers import AutoConfig
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.credit.critic_model import CriticModelConfig
from recipe.credit.policy_loss import StepPolicyLossConfig
from recipe.settings import compose


def test_verl_builds_the_critic_which_follows_the_actor_and_keeps_to_the_attention_that_is_named(tmp_path: Path):
    make_tiny_policy(tmp_path)
    mixed = {"param_dtype": "bfloat16", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    for name, hardware in itertools.product(("step_grained", "appo"), ("cpu", "gpu8")):
        given = [f"hardware={hardware}", f"algorithm={name}", f"actor_rollout_ref.model.path={tmp_path}"]
        config = compose("stage2", given)
        if hardware == "cpu":
            config.launcher.precision = "bfloat16"
        assert need_critic(config)
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=True)
        critic, actor = omega_conf_to_dataclass(config.critic), omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert isinstance(critic.model, CriticModelConfig) and isinstance(actor.policy_loss, StepPolicyLossConfig)
        assert critic.model.hf_config._attn_implementation == {"cpu": "sdpa", "gpu8": "varlen"}[hardware]
        assert critic.engine.mixed_precision == actor.engine.mixed_precision == {"cpu": mixed, "gpu8": None}[hardware]
        longest = config.data.max_prompt_length + config.data.max_response_length
        assert critic.ppo_infer_max_token_len_per_gpu >= longest or hardware == "cpu"
        assert need_reference_policy(config) is (name == "step_grained" and hardware == "gpu8")
    settings = AutoConfig.from_pretrained(tmp_path, attn_implementation="eager", num_labels=1)
    loaded = verl.utils.model.load_valuehead_model(str(tmp_path), torch.float32, settings, False)
    assert loaded.config._attn_implementation == "eager"
