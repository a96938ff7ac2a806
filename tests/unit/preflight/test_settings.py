"""Settings with which something else would be trained without a word, or a start fail late."""

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

import recipe.credit.policy_loss  # noqa: F401
from recipe.credit import GROUPED
from recipe.memory import read_settings
from recipe.preflight import check_settings, settings, summary

ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model"))
GPU, FLASH = "hardware=gpu8", f"{MODEL}.override_config.attn_implementation=flash_attention_2"
ULYSSES, MINI = f"{ACTOR}.ulysses_sequence_parallel_size=2", f"{ACTOR}.ppo_mini_batch_size"
UPDATE, LONG = f"{ACTOR}.ppo_max_token_len_per_gpu", "data.max_response_length=57344"
FORWARD, REFERENCE = (f"{part}.log_prob_max_token_len_per_gpu" for part in (ROLLOUT, REF))
CORRECTION, FILTER = "algorithm.rollout_correction", "algorithm.filter_groups.enable=true"
LORA, ALONE = f"{MODEL}.lora_rank=8", (f"{ROLLOUT}.n=1", "algorithm.adv_estimator=reinforce_plus_plus")
OFFLINE = ("offline.files=FILES", f"{ROLLOUT}.n=1", "algorithm=step_grained")
ASYNC, SEPARATE, V1 = "trainer=async", "trainer=separate", "trainer.v1"
TEACHER = "distillation.teacher_models.teacher_model.model_path"
FROM_GOLD = "interaction.train.from_gold={share: 1, steps: 9}"
TAUGHT = ("algorithm=opd", f"{TEACHER}=/t")
LOSS = "distillation.distillation_loss"
TOP = ("algorithm=opd_topk", TAUGHT[1])
PARALLEL = ("tensor_model", "data", "pipeline_model")
GATE = ("stage.gate.metric=val_dev/reward", "stage.gate.value=1.0", "stage.gate.kind=leave_at", "stage.gate.window=2")

BAD = [
    # what is set, and a word that the problem must have
    (["algorithm.adv_estimator=grpoo"], "grpoo"),
    ([f"{ACTOR}.policy_loss.loss_mode=gspoo"], "gspoo"),
    (["algorithm.adv_estimator=remax"], "remax"),
    *[([f"algorithm.adv_estimator={name}", f"{ROLLOUT}.n=1"], f"{ROLLOUT}.n=1") for name in GROUPED],
    (["algorithm=appo", f"{CORRECTION}.rollout_rs=seq_mean_k3"], "rollout_rs"),
    (["algorithm=tppo", f"{ACTOR}.policy_loss.loss_mode=appo_step"], "appo_step"),
    (["algorithm=appo", f"{ACTOR}.loss_agg_mode=token-mean"], "seq-mean-token-mean"),
    ([f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"], "loss_scale_factor"),
    ([f"{ROLLOUT}.val_kwargs.do_sample=true"], "val_kwargs.temperature"),
    ([GPU, f"{MINI}=64"], f"{MINI}=64"),
    ([GPU, "algorithm=tppo", "critic.ppo_mini_batch_size=64"], "critic.ppo_mini_batch_size=64"),
    ([GPU, f"{MINI}=2", f"{ROLLOUT}.n=2"], "among 8"),
    ([GPU, ULYSSES], "flash_attention_2"),
    ([GPU, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2", FLASH, f"{MODEL}.use_remove_padding=false"], ACTOR),
    ([GPU, f"{REF}.ulysses_sequence_parallel_size=2"], REF),
    ([GPU, "algorithm=tppo", "critic.fsdp.ulysses_sequence_parallel_size=2"], "critic.model"),
    ([GPU, f"{MODEL}.use_remove_padding=false"], "use_remove_padding=true"),
    ([GPU, f"{MODEL}.external_lib=null"], "recipe.gpu.plugin"),
    ([GPU, "trainer.device=cpu"], "on a CPU"),
    (["algorithm=tppo", "critic.model.use_remove_padding=true"], "critic.model"),
    ([FILTER, *ALONE], f"{ROLLOUT}.n=1"),
    ([FILTER, f"{V1}.sampler.custom_sampler.path=a.py", f"{V1}.sampler.custom_sampler.name=A"], "custom_sampler"),
    ([f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.bypass_mode=true"], "bypass_mode"),
    ([f"{CORRECTION}.rollout_is=token", f"{ROLLOUT}.calculate_log_probs=false"], "calculate_log_probs"),
    ([f"{CORRECTION}.rollout_rs=token_k1", f"{ROLLOUT}.calculate_log_probs=false"], "calculate_log_probs"),
    ([f"{MODEL}.lora.rank=8"], f"{MODEL}.lora_rank"),
    ([LORA, f"{MODEL}.target_parameters=[experts]"], "target_modules"),
    *[([LORA, f"{MODEL}.target_modules=[q_proj,{name}]"], "embeddings") for name in ("lm_head", "embed_tokens")],
    (["algorithm=tppo", "critic.model.lora_rank=8"], "critic.model.lora_rank"),
    ([f"{V1}.trainer_mode=mine"], "trainer=sync"),
    (["actor_rollout_ref.hybrid_engine=false"], "hybrid_engine"),
    ([ASYNC, f"{CORRECTION}.rollout_is=null"], "rollout_is=token"),
    ([ASYNC, "algorithm=dapo"], "filter_groups"),
    ([ASYNC, *OFFLINE], "offline.files"),
    ([ASYNC, f"{V1}.sampler.max_off_policy_threshold=1"], "max_off_policy_threshold"),
    *[([ASYNC, f"{V1}.colocate_async.num_warmup_batches={number}"], "num_warmup_batches") for number in (-1, 2)],
    ([SEPARATE, f"{MINI}=2"], "MINI_BATCH_SIZE"),
    ([SEPARATE, f"{V1}.separate_async.parameter_sync_step=2"], f"{V1}.separate_async.parameter_sync_step=1"),
    ([SEPARATE, LORA], f"Set {MODEL}.lora.merge=true"),
    ([SEPARATE, f"{ROLLOUT}.nnodes=0"], f"{ROLLOUT}.nnodes"),
    ([SEPARATE, *(f"{ROLLOUT}.{kind}_parallel_size=2" for kind in PARALLEL)], "takes 8 devices"),
    ([SEPARATE, f"{ROLLOUT}.checkpoint_engine.backend=naive"], "gloo"),
    *[([f"offline.{key}"], "offline.files") for key in ("rewards=final", "old_log_probs=step")],
    (["stage.name=offline"], "offline.files"),
    ([*OFFLINE, "environment.guard=a.parquet"], "environment.guard"),
    ([*OFFLINE, FILTER], "filter_groups"),
    ([*OFFLINE, *GATE], "stage.gate=null"),
    ([*OFFLINE, *GATE[1:]], "stage.gate=null"),
    ([*OFFLINE, "stage.handover=best"], "stage.handover=last"),
    ([*OFFLINE, "stage.over_budget=leave_out"], "stage.over_budget=keep"),
    ([*OFFLINE, "interaction.overlong.penalty=0.5"], "overlong.penalty=0"),
    ([*OFFLINE, FROM_GOLD], "from_gold=null"),
    ([*OFFLINE, "data.custom_cls.path=mine.py"], "custom_cls.path=null"),
    ([*OFFLINE, f"{ROLLOUT}.n=2"], f"{ROLLOUT}.n=2"),
    ([*OFFLINE, f"{MODEL}.lora_adapter_path=a", LORA], "offline.old_log_probs=step"),
    *[([*OFFLINE, f"{CORRECTION}.{key}"], "log_probs=step") for key in ("bypass_mode=true", "rollout_rs=token_k1")],
    ([f"{ROLLOUT}.dtype=float16"], "float16"),
    *[([f"{part}.fsdp_config.mixed_precision.param_dtype=fp16"], "float16") for part in (ACTOR, REF)],
    (["interaction.protocol=xml"], "interaction.protocol"),
    (["algorithm=opd"], f"Set {TEACHER}"),
    ([f"{TEACHER}=/t"], "algorithm=opd"),
    ([*TAUGHT, "distillation.nnodes=0"], "n_gpus_per_node=0"),
    ([*TAUGHT, ASYNC], "trainer"),
    ([*TAUGHT, f"{ROLLOUT}.temperature=0.7"], f"{ROLLOUT}.temperature=0.7"),
    ([*TAUGHT, "distillation.distillation_loss.use_policy_gradient=false"], "use_policy_gradient=true"),
    ([*TAUGHT, "distillation.distillation_loss.loss_mode=k3"], "use_policy_gradient=false"),
    ([*TOP, f"{MODEL}.use_fused_kernels=true"], "use_fused_kernels=false"),
    *[([*TOP, f"{LOSS}.{name}=10.0"], name) for name in ("loss_max_clamp", "log_prob_min_clamp")],
    ([*TAUGHT, f"{LOSS}.log_prob_min_clamp=-10.0"], "log_prob_min_clamp"),
    ([*TAUGHT, f"{LOSS}.distillation_loss_coef=0.1"], "distillation_loss_coef=1"),
    ([*TAUGHT, FILTER], "filter_groups"),
    ([*TAUGHT, "algorithm.use_kl_in_reward=true"], "use_kl_in_reward=false"),
    ([*TOP, f"{ACTOR}.use_kl_loss=true"], "use_kl_loss=false"),
    ([*TAUGHT, f"{ACTOR}.entropy_coeff=0.01"], "entropy_coeff=0"),
    ([*TAUGHT, "interaction.overlong.penalty=0.5"], "overlong.penalty=0"),
    ([FROM_GOLD, "stage.resample.pool=a.parquet"], "from_gold"),
    ([FILTER, "stage.resample.pool=a.parquet"], "stage.resample.pool"),
    ([*OFFLINE, "stage.resample.pool=a.parquet"], "stage.resample.pool=null"),
    *[([f"stage.resample.keep=[{keep}]"], "stage.resample") for keep in ("0.8,0.2", "0.5,0.5", "-0.1,0.5", "0.5,0.96")],
    *[([f"stage.resample.{key}"], "stage.resample") for key in ("retire=1.1", "replace=1.1", "replace=-0.1")],
    ([FROM_GOLD, "stage.gate.kind=leave_at", "stage.gate.value=1.0"], "stage.gate=null"),
    ([FROM_GOLD, "interaction.train.calls_per_message=first"], "calls_per_message=all"),
    (["algorithm=opd_grpo", *TAUGHT[1:], f"{ROLLOUT}.n=1"], f"{ROLLOUT}.n=1"),
    (["+interaction.train.environments.bfcl.augmnt=true"], "augmnt"),
]


@pytest.fixture
def judged(configured, refusal, tmp_path):
    """The configuration, and what is wrong with it."""
    (tmp_path / "000001.jsonl").touch()

    def judged(overrides):
        config = configured(*(item.replace("FILES", str(tmp_path)) for item in overrides))
        return config, refusal(lambda: check_settings(config))

    return judged


def test_what_cannot_work_is_refused_with_the_setting_to_change(judged):
    for overrides, word in BAD:
        _, said = judged(overrides)
        assert word in said and all(len(line) <= 400 for line in said.splitlines()), (overrides, said)


def test_what_works_is_not_refused_and_all_problems_are_named_at_once(judged):
    _, said = judged(["algorithm.adv_estimator=gae_bad", "trainer.logger=[wandbb]", f"{MINI}=3"])
    assert all(word in said for word in ("critic.enable", "wandbb", f"{MINI}=3")) and said.count("\n- ") == 3
    value, logged = f"{ROLLOUT}.val_kwargs", f"{ROLLOUT}.calculate_log_probs=true"
    for overrides in (
        [GPU, f"{MINI}=8"],
        [GPU, ULYSSES, FLASH, f"{MINI}=2", f"{ROLLOUT}.n=2"],
        [GPU, "critic.fsdp.ulysses_sequence_parallel_size=2"],  # no critic
        ALONE,
        [SEPARATE, "hardware=gpu1"],  # with its adapter merged
        ["algorithm=tppo", f"{ROLLOUT}.n=1"],
        [*TAUGHT, f"{ROLLOUT}.n=1"],
        [FROM_GOLD, *GATE],
        ["stage.resample.keep=[0,1]", "stage.resample.retire=1", "stage.resample.replace=1"],
        ["stage.resample.replace=0"],
        *(
            [ASYNC, f"{V1}.sampler.max_off_policy_threshold=2", f"{V1}.colocate_async.num_warmup_batches={n}"]
            for n in (0, 1)
        ),
        [SEPARATE, f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.n_gpus_per_node=2"],
        [FILTER, f"{V1}.sampler.custom_sampler.path=a.py"],
        *([GPU, f"algorithm={name}", f"{TEACHER}=/t"] for name in ("opd", "opd_topk")),
        [GPU, "algorithm=opd_grpo", f"{TEACHER}=/t", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.entropy_coeff=0.01"],
        [f"{value}.do_sample=true", f"{value}.temperature=0.6", f"{value}.n=4"],
        [LORA, f"{MODEL}.target_modules=[q_proj,down_proj]", f"{MODEL}.lora_adapter_path=/a"],
        [*OFFLINE, "offline.old_log_probs=step", f"{CORRECTION}.bypass_mode=true", logged],
    ):
        assert judged(overrides)[1] == "", overrides


def test_every_mode_passes_with_the_devices_that_it_takes(configured):
    for mode, algorithm in (("async", "tppo"), ("separate", "appo")):
        given = (f"trainer={mode}", f"algorithm={algorithm}", "trainer.n_gpus_per_node=1", "trainer.logger=[console]")
        check_settings(config := configured(*given))
        assert config.trainer.logger == ["console", "file"], "gates and tables read the file"
        assert config.actor_rollout_ref.actor.optim.clip_grad == config.critic.optim.clip_grad == 0.5, "what verl reads"
        assert any("may span 4 versions" in note for note in settings.notes(config))
    config = configured(SEPARATE, GPU, "trainer.n_gpus_per_node=4")
    assert settings.devices(config) == 8 and not read_settings(config, 80e9).plays


def test_micro_batches_divide_the_trajectories_and_token_budgets_hold_the_longest_episode(judged, capsys):
    for given, sizes in (
        (ALONE, (4, 4)),
        (["data.train_batch_size=3", f"{MINI}=3", f"{ROLLOUT}.n=2"], (3, 6)),
        ([f"{ACTOR}.ppo_micro_batch_size_per_gpu=6"], (4, 8)),
        ([], (4, 8)),
    ):
        config, said = judged(given)
        policy = config.actor_rollout_ref
        found = policy.actor.ppo_micro_batch_size_per_gpu, policy.rollout.log_prob_micro_batch_size_per_gpu
        assert (said, found) == ("", sizes) and ("NOTE" in capsys.readouterr().out) is bool(given)
    infer = "critic.ppo_infer_max_token_len_per_gpu"
    for given, key, least in (
        ([LONG], UPDATE, 65536),
        ([LONG, f"{FORWARD}=65535"], FORWARD, 65536),
        ([LONG, f"{REFERENCE}=40960"], REFERENCE, 65536),
        ([ULYSSES, FLASH, f"{UPDATE}=9000"], UPDATE, 9096),
        (["algorithm=tppo", f"{infer}=16384"], infer, 18192),
    ):
        config, said = judged([GPU, *given])
        assert said == "" and OmegaConf.select(config, key) == least


def test_stored_trajectories_are_the_data_and_the_start_model_gives_the_old_log_probabilities(judged):
    off = ["algorithm.use_kl_in_reward=false", f"{ACTOR}.use_kl_loss=false"]
    config, said = judged([*OFFLINE, *off, "data.shuffle=false"])
    assert not said and len(config.data.train_files) == 1 and config.trainer.test_freq == -1 and config.data.shuffle
    assert config.actor_rollout_ref.actor.use_kl_loss and config.actor_rollout_ref.actor.kl_loss_coef == 0
    config, said = judged([*OFFLINE, *off, "offline.old_log_probs=step"])
    assert not said and not config.actor_rollout_ref.actor.use_kl_loss
    config, said = judged([*OFFLINE, f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=0.5"])
    assert not said and config.actor_rollout_ref.actor.kl_loss_coef == 0.5, "a KL that was asked for stays"


def test_what_is_set_and_does_nothing_is_a_line_and_the_recipe_as_it_is_has_none(configured):
    noted = [
        ([f"{ACTOR}.grad_clip=0.5"], f"{ACTOR}.optim.clip_grad"),
        (["custom_reward_function.path=a.py"], "reward.custom_reward_function.path"),
        ([GPU, "algorithm=gspo"], "MINI_BATCH_SIZE below 32"),
        ([f"{ACTOR}.policy_loss.loss_mode=gspo", f"{MINI}=2"], "never clips"),
        (["interaction.overlong.train=false", f"{ACTOR}.loss_agg_mode=seq-mean-token-sum"], "overlong.train=false"),
        (["interaction.record_tokens=true", "interaction.record_dir=null"], "record_dir=null"),
        ([FILTER, "stage.gate.value=1.0", "stage.gate.window=2"], "val_dev/"),
        ([f"{ROLLOUT}.top_p=0.9"], f"{ROLLOUT}.top_p=0.9: the engine plays with other"),
        ([f"{ROLLOUT}.top_k=20"], f"{ROLLOUT}.top_k=20: the engine plays with other"),
        ([f"+{ROLLOUT}.engine_kwargs.vllm.logits_processors=[a.B]"], "logits_processors=['a.B']"),
        ([f"+{ROLLOUT}.repetition_penalty=1.2"], f"{ROLLOUT}.repetition_penalty=1.2 does nothing"),
    ]
    assert [*settings.notes(configured()), *settings.notes(configured(stage="stage3"))] == []
    assert [*settings.notes(configured(f"{ROLLOUT}.top_k=0", f"{ROLLOUT}.val_kwargs.top_p=0.8"))] == []
    missing = [given for given, word in noted if not any(word in note for note in settings.notes(configured(*given)))]
    assert missing == []
    assert "NOTE" in summary(configured(*noted[0][0]), []) and "inert" in summary(configured(GPU), [])


def test_the_summary_has_what_is_set_and_leaves_out_what_is_not(configured):
    def lines(*given):
        return {line[:11].strip(): line[11:] for line in summary(configured(*given), []).splitlines()}

    plain = lines()
    for given, name, word in (
        (OFFLINE, "data", "FILES,"),
        (OFFLINE, "reward", "as stored"),
        (TAUGHT, "distilled", "from /t, k1, without"),
        (["algorithm=opd_grpo", f"{TEACHER}=/t"], "distilled", "from /t, k1, beside"),
        (TOP, "distilled", "from /t, forward_kl_topk, without"),
        (TAUGHT, "hardware", "1 more for the teacher"),
        ([SEPARATE], "hardware", "1 more to play"),
        (["trainer.total_training_steps=7"], "learning", "at most 7 steps"),
        (["data.leave_out=[a,b]"], "data", "2 tasks left out"),
        ([LORA, f"{MODEL}.lora_adapter_path=/a"], "model", "adapter /a"),
        ([FILTER], "algorithm", "dynamic sampling by"),
    ):
        assert word in lines(*given)[name] and word not in plain.get(name, ""), (given, name)


def test_verl_has_the_known_estimators_and_losses_and_no_other():
    names = {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY} | set(settings.OURS)
    assert names == {*settings.WITH_CRITIC, *GROUPED, *settings.UNFED, "reinforce_plus_plus"}
    assert set(settings.LOSSES) == set(POLICY_LOSS_REGISTRY)
