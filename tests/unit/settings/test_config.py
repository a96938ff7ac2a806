"""Configurations compose to the values the recipe promises, and verl accepts them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.launch.compose import launch_overrides
from recipe.settings import CONFIG_DIR

ROOT = Path(__file__).parents[3]

STAGES = {
    # rows, train batch, prompt tokens, response tokens, steps of 20 epochs, save_freq, test_freq, reward, augmented
    "stage1": (75, 16, 8192, 10000, 80, 20, 4, "pkg://rewards.format", False),
    "stage2": (100, 32, 8192, 10000, 60, 15, 3, "pkg://rewards.progress", True),
    "stage3": (400, 32, 8192, 24576, 240, 60, 12, "pkg://rewards.progress", True),
}


GPUS = ("gpu8", "gpu8_24gb", "gpu1")


def composed(name: str, *overrides: str) -> DictConfig:
    own = [override for override in launch_overrides(list(overrides)) if not override.startswith("hydra/")]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose(name, overrides=[*overrides, *own])


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", STAGES)
def test_each_stage_has_its_documented_values_on_eight_gpus(name: str):
    rows, batch, prompt, response, steps, save, test, reward, augmented = STAGES[name]
    config = composed(name, "hardware=gpu8")
    assert config.data.train_batch_size == batch
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == batch
    assert (config.data.max_prompt_length, config.data.max_response_length) == (prompt, response)
    assert config.trainer.total_epochs == 20
    assert rows // batch * config.trainer.total_epochs == steps
    assert (config.trainer.save_freq, config.trainer.test_freq) == (save, test)
    assert config.reward.custom_reward_function.path == reward
    assert config.interaction.train.environments.bfcl.augment is augmented
    assert config.interaction.val.environments.bfcl.augment is False
    assert config.trainer.n_gpus_per_node == 8


@pytest.mark.parametrize("name", STAGES)
def test_all_stages_share_the_algorithm_where_verl_reads_it(name: str):
    config = composed(name, "hardware=gpu8")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert config.algorithm.adv_estimator == "grpo"
    assert (rollout.n, rollout.temperature, rollout.tensor_model_parallel_size) == (16, 1.0, 1)
    assert (rollout.gpu_memory_utilization, rollout.max_model_len) == (0.7, 32768)
    assert (actor.optim.lr, actor.optim.clip_grad, actor.entropy_coeff) == (1e-6, 1.0, 0.001)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.1, "low_var_kl")
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 10.0)
    assert actor.loss_agg_mode == "seq-mean-token-mean"
    assert "loss_agg_mode" not in config.algorithm
    assert (actor.use_dynamic_bsz, actor.ppo_max_token_len_per_gpu) == (True, 32768)
    assert config.trainer.v1.trainer_mode == "sync"
    assert (rollout.val_kwargs.temperature, rollout.val_kwargs.n) == (0, 1)
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= rollout.max_model_len


@pytest.mark.parametrize("hardware", [*GPUS, "cpu"])
@pytest.mark.parametrize("name", STAGES)
def test_verl_accepts_the_configuration(name: str, hardware: str):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    # the largest rank of an adapter is asked of a distribution called vllm, which the CPU environment does not have
    given = ("actor_rollout_ref.model.path=/nowhere", "actor_rollout_ref.model.lora_rank=0")
    config = composed(name, f"hardware={hardware}", *given)
    # dataclasses of verl read the model when they are built, so only what needs none is validated here
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert need_reference_policy(config) is (hardware != "cpu")


def test_an_override_reaches_the_key_it_names():
    config = composed("stage2", "hardware=gpu8", "trainer.total_epochs=3", "actor_rollout_ref.actor.optim.lr=2e-6")
    assert (config.trainer.total_epochs, config.actor_rollout_ref.actor.optim.lr) == (3, 2e-6)


@pytest.mark.parametrize("hardware", ["gpu8", "cpu"])
def test_the_environment_variables_of_the_scripts_are_read(hardware: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"MODEL": "/m", "TRAIN_BATCH_SIZE": "8", "MINI_BATCH_SIZE": "2", "RUN": "mine"}.items():
        monkeypatch.setenv(name, value)
    config = composed("stage3", f"hardware={hardware}")
    assert config.actor_rollout_ref.model.path == "/m"
    assert config.data.train_batch_size == 8
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == 2
    assert config.paths.stage == "outputs/mine/stage3_full"


def test_every_stage_has_checkpoints_of_its_own():
    folders = {composed(name, "hardware=tiny").trainer.default_local_dir for name in STAGES}
    assert len(folders) == len(STAGES)


def test_composing_imports_neither_torch_nor_ray():
    code = (
        "import sys, os; os.environ['HARDWARE'] = 'tiny'\n"
        "from recipe.curriculum import compose_stage\n"
        "compose_stage('stage1', [])\n"
        "print(sorted({'torch', 'ray', 'verl', 'vllm'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]", answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("hardware", "rows"),
    [
        ("gpu8", "sft_train"),
        ("gpu8_24gb", "sft_train"),
        ("gpu1", "sft_train"),
        ("cpu", "stage0_sft"),
        ("tiny", "tiny_sft"),
    ],
)
def test_the_warm_start_composes_for_every_profile(hardware: str, rows: str):
    own = [item for item in launch_overrides([], group="sft_hardware") if item.startswith("hydra.searchpath")]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        config = compose("sft", overrides=[*own, f"sft_hardware={hardware}"])
    assert rows in config.data.train_files
    assert "hf_model" in config.checkpoint.save_contents
    assert OmegaConf.missing_keys(config) == set()
    assert config.data.max_token_len_per_gpu >= config.data.max_length


@pytest.mark.parametrize("hardware", GPUS)
@pytest.mark.parametrize("name", STAGES)
def test_every_gpu_profile_packs_rows_and_has_room_for_its_longest_episode(name: str, hardware: str):
    config = composed(name, f"hardware={hardware}")
    part = config.actor_rollout_ref
    assert part.model.use_remove_padding and part.model.use_fused_kernels
    assert part.model.override_config.attn_implementation == "varlen" and part.model.external_lib == "recipe.gpu.plugin"
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= part.rollout.max_model_len
    for budget in (part.actor.ppo_max_token_len_per_gpu, part.ref.log_prob_max_token_len_per_gpu):
        assert budget >= longest
    assert part.rollout.log_prob_max_token_len_per_gpu >= longest
    assert config.critic.ppo_max_token_len_per_gpu >= longest
    assert config.algorithm.rollout_correction.rollout_is == "token"
    assert config.trainer.n_gpus_per_node % part.rollout.tensor_model_parallel_size == 0
    assert config.data.train_batch_size * part.rollout.n % config.trainer.n_gpus_per_node == 0
    assert config.paths.data == f"data/{hardware}"  # where run_all.sh makes it


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "recipe.train", *arguments],
        cwd=ROOT,
        env={**os.environ, "HARDWARE": "tiny", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_misspelt_override_stops_with_the_key_it_could_not_find(tmp_path: Path):
    answer = start("--config-name", "stage2", f"paths.run={tmp_path}", "trainer.total_epoch=3")
    assert answer.returncode != 0
    assert "trainer.total_epoch" in answer.stdout + answer.stderr
