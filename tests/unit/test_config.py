"""Configurations compose to the values that the recipe promises, and verl accepts them."""

import subprocess
import sys
from pathlib import Path

from omegaconf import OmegaConf

from recipe.settings import compose

STAGES = {
    # rows, train batch, prompt tokens, response tokens, steps of 20 epochs, save_freq, test_freq, augmented
    "stage1": (75, 16, 8192, 10000, 80, 20, 4, False),
    "stage2": (100, 32, 8192, 10000, 60, 15, 3, True),
    "stage3": (400, 32, 8192, 24576, 240, 60, 12, True),
}
GPUS = ("gpu8", "gpu8_24gb", "gpu1")


def test_each_stage_has_its_documented_values_on_eight_gpus() -> None:
    for name, (rows, batch, prompt, response, steps, save, test, augmented) in STAGES.items():
        config = compose(name, ["hardware=gpu8"])
        data, trainer, actor = config.data, config.trainer, config.actor_rollout_ref.actor
        rollout = config.actor_rollout_ref.rollout
        assert (data.train_batch_size, actor.ppo_mini_batch_size) == (batch, batch)
        assert (data.max_prompt_length, data.max_response_length) == (prompt, response)
        assert rows // batch * trainer.total_epochs == steps
        assert (trainer.total_epochs, trainer.save_freq, trainer.test_freq) == (20, save, test)
        assert config.interaction.train.environments.bfcl.augment is augmented
        assert config.interaction.val.environments.bfcl.augment is False
        assert (config.algorithm.adv_estimator, rollout.n, rollout.temperature) == ("grpo", 16, 1.0)
        assert (actor.optim.lr, actor.optim.clip_grad, actor.entropy_coeff) == (1e-6, 1.0, 0.001)
        assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.1, "low_var_kl")
        assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 10.0)
        assert actor.loss_agg_mode == "seq-mean-token-mean" and "loss_agg_mode" not in config.algorithm
        assert (rollout.val_kwargs.temperature, rollout.val_kwargs.n, trainer.v1.trainer_mode) == (0, 1, "sync")


def test_a_small_real_model_is_rewarded_densely_in_all_stages_and_others_by_format_first() -> None:
    usual = ["format", "progress", "progress"]
    for hardware, names in {"cpu": ["dense"] * 3, "gpu8": usual, "tiny": usual}.items():
        stages = [compose(f"stage{number}", [f"hardware={hardware}", "stage.name=polish"]) for number in (1, 2, 3)]
        found = [stage.reward.custom_reward_function.path for stage in stages]
        assert found == [f"pkg://rewards.{name}" for name in names]


def test_an_algorithm_is_what_its_name_says() -> None:
    for name, given in {
        "step_grained": "reward.custom_reward_function.path=pkg://rewards.step",
        "rloo": "algorithm.adv_estimator=rloo",
        "cispo": "actor_rollout_ref.actor.policy_loss.loss_mode=cispo",
        "opd": "distillation.distillation_loss.use_task_rewards=False",
    }.items():
        key, _, value = given.partition("=")
        assert str(OmegaConf.select(compose("stage2", [f"algorithm={name}"]), key)) == value, name


def test_composing_imports_neither_torch_nor_ray() -> None:
    code = "import sys; from recipe.settings import compose; compose('stage1', ['hardware=tiny'])\n"
    code += "print(sorted({'torch', 'ray', 'verl', 'vllm'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert answer.stdout.strip() == "[]", answer.stdout + answer.stderr


def test_the_warm_start_composes_for_every_profile() -> None:
    rows = {**dict.fromkeys(GPUS, "sft_train"), "cpu": "stage0_sft", "tiny": "tiny_sft"}
    for hardware, file in rows.items():
        config = compose("sft", [f"sft_hardware={hardware}"], group="sft_hardware")
        assert file in config.data.train_files and "hf_model" in config.checkpoint.save_contents
        assert config.data.max_token_len_per_gpu >= config.data.max_length and not OmegaConf.missing_keys(config)
        config = compose("sft", ["preset=steptool", f"sft_hardware={hardware}"], group="sft_hardware")
        optim, data = config.optim, config.data
        assert (optim.lr, optim.lr_scheduler_type, optim.weight_decay, optim.min_lr_ratio) == (2e-5, "cosine", 0, 0)
        assert (optim.lr_warmup_steps, optim.lr_warmup_steps_ratio) == (-1, 0.04)
        assert (data.train_batch_size, data.micro_batch_size_per_gpu) == (4 * 4, 1) and not data.use_dynamic_bsz
        assert (data.max_length, config.trainer.total_epochs, config.trainer.test_freq) == (8192, 5, 400)


def test_every_gpu_profile_packs_rows_and_has_room_for_its_longest_episode() -> None:
    for hardware in GPUS:
        for name in STAGES:
            config = compose(name, [f"hardware={hardware}"])
            part, longest = config.actor_rollout_ref, config.data.max_prompt_length + config.data.max_response_length
            assert part.model.use_remove_padding and part.model.use_fused_kernels and part.model.lora.merge
            assert part.actor.use_kl_loss
            variables = {"VLLM_DISABLE_COMPILE_CACHE": "0", "VLLM_NO_USAGE_STATS": "1"}
            assert variables.items() <= config.launcher.env.items()
            budgets = (part.actor.ppo_max_token_len_per_gpu, part.ref.log_prob_max_token_len_per_gpu)
            budgets += (part.rollout.log_prob_max_token_len_per_gpu, config.critic.ppo_max_token_len_per_gpu)
            assert min(*budgets, part.rollout.max_model_len) >= longest, (hardware, name)
            correction = config.algorithm.rollout_correction
            assert (correction.rollout_is, correction.rollout_is_threshold) == ("token", 2.0)
            assert part.actor.optim.lr == (1e-4 if part.model.lora_rank else 1e-6)
            assert config.data.train_batch_size * part.rollout.n % config.trainer.n_gpus_per_node == 0
            assert config.paths.data == f"data/{hardware}"  # where run_all.sh makes it
