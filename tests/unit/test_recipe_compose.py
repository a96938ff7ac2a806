"""Overrides are applied here, one by one, so that a mistake in one is told by name: the result is Hydra's own."""

import hydra
import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from recipe.compose import CONFIG_DIR, compose, searched, verl_config_dir

RIGHT = [
    ["trainer.total_epochs=3", "actor_rollout_ref.rollout.n=4", "data.train_files=[a.parquet,b.parquet]"],
    ["+reward.custom_reward_function.reward_kwargs.scale=100", "reward.custom_reward_function.path='a b.py'"],
    ["algorithm=tppo", "trainer.logger=[console,wandb]", "++trainer.total_epochs=5"],
    ["stage.gate={kind: leave_at, value: 1.0}", "interaction.overlong={train: false}", "+stage.gate.window=3"],
    ["stage.gate=null", "interaction.train.max_result_chars=null", "actor_rollout_ref.actor.optim.betas=[0.9,0.99]"],
    ["+actor_rollout_ref.rollout.engine_kwargs.vllm={seed: 3, a: [1, {b: c}]}", "stage.alarms.lost=1e-2"],
    ["trainer.default_local_dir=${paths.stage}/x", "+custom.mine.x=1", "actor_rollout_ref.model.path=/a/b-c_d.e"],
    ['trainer.experiment_name="a=b, c"', "trainer.experiment_name='it\\'s'", "data.seed=${oc.decode:'7'}"],
]


@pytest.mark.parametrize("overrides", RIGHT, ids=lambda overrides: overrides[0])
def test_right_overrides_give_what_hydra_composes(overrides: list[str]) -> None:
    ours = compose("stage2", ["hardware=cpu", *overrides])
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        theirs = hydra.compose("stage2", overrides=["hardware=cpu", *overrides, searched([verl_config_dir()])])
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs)


@pytest.mark.parametrize("hardware", ["cpu", "gpu1", "gpu8", "gpu8_24gb"])
def test_profiles_are_those_that_hydra_composes(hardware: str) -> None:
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        theirs = hydra.compose("stage3", overrides=[f"hardware={hardware}", searched([verl_config_dir()])])
    assert OmegaConf.to_yaml(compose("stage3", [f"hardware={hardware}"])) == OmegaConf.to_yaml(theirs)
