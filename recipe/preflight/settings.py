"""Settings that depend on each other, with which something else would be trained without a word, or a start fail late.

Each check yields its problems: what is wrong, and what to set.
"""

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import get_protocol
from recipe.credit import GROUPED, is_grouped
from recipe.memory import BYTES, Architecture, sequence_parts, teacher_cards
from recipe.offline.trajectories import FORMS, found
from recipe.preflight import teacher
from recipe.settings import CONFIG_DIR, as_list, is_offline, on_policy

VERL_VERSION = "0.9.1"
ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model"))

OWN = "One of your own: name its module in VERL_USE_EXTERNAL_MODULES."
WITH_CRITIC = ("gae", "gae_bad", "gae_step")
OURS = ("gae_bad", "gae_step", "turn_grpo")
WHOLE_STEPS = ("grpo", "turn_grpo", "gae_step")
"""Estimators that give all tokens of a step one advantage, as the loss appo_step expects."""
UNFED = ("remax", "optimal_token_baseline", "tir_optimal_token_baseline", "gdpo")
"""Estimators of verl that need what its trainer does not hand over (`PPOTrainer._compute_advantage`)."""
LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo"),
    *("bypass_mode", "appo_step"),
)

SYNC, ASYNC, SEPARATE = "sync", "colocate_async", "separate_async"
GROUPS = {ASYNC: "trainer=async", SEPARATE: "trainer=separate"}
"""What sets everything that a mode needs."""

STORED = "recipe.offline.trainer"

DEAD = {
    f"{ACTOR}.grad_clip": (1.0, f"{ACTOR}.optim.clip_grad"),
    "critic.grad_clip": (1.0, "critic.optim.clip_grad"),
    f"{ACTOR}.fsdp_config.dtype": ("bfloat16", f"{ACTOR}.fsdp_config.mixed_precision.param_dtype"),
    f"{ROLLOUT}.do_sample": (True, f"{ROLLOUT}.temperature"),
    f"{ROLLOUT}.repetition_penalty": (None, f"{ROLLOUT}.temperature"),
    f"{ROLLOUT}.multi_turn.max_assistant_turns": (None, "interaction.train.max_steps_per_turn"),
    f"{ROLLOUT}.multi_turn.max_tool_response_length": (256, "interaction.train.max_result_chars"),
    "algorithm.filter_groups.max_num_gen_batches": (0, "stage.max_gen_batches"),
    "custom_reward_function.path": (None, "reward.custom_reward_function.path"),
}
"""Settings of verl's that nothing reads on this path -> their default, and what does what they promise."""


def problems(config: DictConfig) -> Iterator[str]:
    """What is wrong with settings that need neither data nor model nor machine to be judged."""
    if (version := importlib.metadata.version("verl")) != VERL_VERSION:
        yield f"verl {version} is installed, this recipe is written for {VERL_VERSION}. Run `bash setup.sh`."
    try:
        get_protocol(config.interaction.protocol, docs=config.interaction.docs)
    except ValueError as error:
        yield f"interaction.protocol, interaction.docs: {error}."
    for name in set(as_list(config.trainer.logger)) - {"console", "file", "rl_insight", "vemlp_wandb"}:
        if importlib.util.find_spec(name) is None:
            yield f"trainer.logger has {name}, and no such package is installed. Install it, or leave it out."
    for check in CHECKS:
        yield from check(config)


def algorithm(config: DictConfig) -> Iterator[str]:
    """Estimator, critic and loss fit each other."""
    algorithm, actor, rollout = config.algorithm, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    name, loss, mean = str(algorithm.adv_estimator), actor.policy_loss.loss_mode, actor.loss_agg_mode
    given, rejection = f"algorithm.adv_estimator={name}", algorithm.rollout_correction.rollout_rs
    registered = os.environ.get("VERL_USE_EXTERNAL_MODULES")  # which may have estimators and losses of their own
    own = name not in (*WITH_CRITIC, *GROUPED, *UNFED, "reinforce_plus_plus")
    if own and registered and not isinstance(algorithm.credit.grouped, bool):
        yield f"{given}: does it compare the rollouts of a task? Set algorithm.credit.grouped to true or false."
    if own and not registered:
        yield f"{given} is not known. Choose by algorithm=NAME, or one of {', '.join((*WITH_CRITIC, *GROUPED))}. {OWN}"
    if loss not in LOSSES and not registered:
        yield f"{ACTOR}.policy_loss.loss_mode={loss} is not known. Set one of {', '.join(LOSSES)}. {OWN}"
    if name in UNFED:
        yield f"{given} needs what verl's trainer does not compute for it. Take grpo, rloo or reinforce_plus_plus."
    if is_grouped(algorithm) and rollout.n < 2:
        yield f"{given} compares the rollouts of a task, and {ROLLOUT}.n={rollout.n}. Set it to 2 or more."
    if name in WITH_CRITIC and config.critic.enable is not True:
        yield f"{given} needs a critic, and critic.enable={config.critic.enable}. Set it to true, or algorithm=tppo."
    if rejection is not None and (name in OURS or loss == "appo_step"):
        whole = "the loss appo_step" if loss == "appo_step" else given
        yield f"algorithm.rollout_correction.rollout_rs={rejection} drops tokens that {whole} needs. Set it to null."
    if loss == "appo_step" and name not in WHOLE_STEPS:
        yield f"{given} gives no single advantage a step, as the loss appo_step needs. Set {' or '.join(WHOLE_STEPS)}."
    if loss == "appo_step" and mean == "token-mean":
        yield f"{ACTOR}.loss_agg_mode=token-mean divides by tokens, not steps. Set seq-mean-token-mean for appo_step."
    if mean == "seq-mean-token-sum-norm" and not actor.loss_scale_factor:
        yield f"{ACTOR}.loss_agg_mode={mean} divides by a micro-batch's width. Set loss_scale_factor."
    if rollout.val_kwargs.get("do_sample") and rollout.val_kwargs.temperature == 0:
        yield f"{ROLLOUT}.val_kwargs.do_sample=true with temperature=0 is greedy. Set {ROLLOUT}.val_kwargs.temperature."


def batches(config: DictConfig) -> Iterator[str]:
    """verl fills a mini-batch that does not divide with empty episodes, which count in the mean of the loss."""
    batch, n, world = config.data.train_batch_size, config.actor_rollout_ref.rollout.n, _world(config)
    for key, part, engine in _trained(config):
        mini, shares = part.ppo_mini_batch_size, max(1, world // sequence_parts(part, engine))
        given = f"{key}.ppo_mini_batch_size={mini}"
        if not 1 <= mini <= batch or batch % mini:
            yield f"{given} does not divide data.train_batch_size={batch}. Set MINI_BATCH_SIZE to a divisor of it."
        elif mini * n % shares:
            how = f"Set MINI_BATCH_SIZE, {ROLLOUT}.n or trainer.n_gpus_per_node"
            yield f"{given} x {ROLLOUT}.n={n} does not divide among {shares} GPUs or groups of them. {how}."


def split_models(config: DictConfig) -> Iterator[str]:
    """Sequence parallelism needs flash-attn: else each GPU attends to its own part of a text."""
    policy, device = config.actor_rollout_ref, config.trainer.device
    yield from packed_rows(policy.model, MODEL, device)
    if config.critic.enable is True:
        yield from packed_rows(config.critic.model, "critic.model", device)
    for key, part, engine in (*_trained(config), (REF, policy.ref, "fsdp_config")):
        model, where = (config.critic.model, "critic.model") if key == "critic" else (policy.model, MODEL)
        attention = (model.get("override_config") or {}).get("attn_implementation", "flash_attention_2")
        right = model.get("use_remove_padding") and str(attention).startswith("flash_attention_")
        if sequence_parts(part, engine) > 1 and not right:
            needed = f"{where}.override_config.attn_implementation=flash_attention_2 (it is {attention})"
            yield f"{key}: ulysses_sequence_parallel_size above 1 needs {where}.use_remove_padding=true and {needed}."
    plugin = "recipe.gpu.plugin" in str(policy.model.external_lib)
    varlen = str(policy.model.override_config.get("attn_implementation")).startswith("varlen")
    if varlen and not (policy.model.use_remove_padding and plugin):
        yield f"the attention varlen needs {MODEL}.use_remove_padding=true and external_lib=recipe.gpu.plugin."


def packed_rows(model: DictConfig, name: str, device: str) -> Iterator[str]:
    """The rows of a model, which the configuration calls `name`, are not packed on a CPU: its engine lays them out."""
    if device == "cpu" and model.get("use_remove_padding"):
        yield f"{name}.use_remove_padding=true gives wrong log-probabilities on a CPU. Set it to false."


def sampling(config: DictConfig) -> Iterator[str]:
    """Dynamic sampling, and correction of the rollouts."""
    filtering, sampler = config.algorithm.filter_groups, config.trainer.v1.sampler.custom_sampler
    resample = config.stage.resample
    correction, rollout = config.algorithm.rollout_correction, config.actor_rollout_ref.rollout
    if filtering.enable and rollout.n < 2:
        yield f"algorithm.filter_groups compares rollouts, and {ROLLOUT}.n={rollout.n}. Set it to 2 or more."
    if filtering.enable and sampler.path and sampler.name:
        yield "algorithm.filter_groups.enable=true does nothing with trainer.v1.sampler.custom_sampler. Leave one out."
    if resample.pool and filtering.enable:  # which leaves out the groups by which tasks are known to be easy or hard
        yield "stage.resample.pool does not work with algorithm.filter_groups.enable=true. Leave one of the two out."
    first, gate = config.interaction.train.get("from_gold"), config.stage.gate
    if first and resample.pool:  # a task whose last turn is easy is not mastered
        yield "stage.resample.pool does not work with interaction.train.from_gold. Leave one of the two out."
    if first and gate and not gate.get("metric", "").startswith("val"):
        yield "stage.gate reads rewards behind gold's turns (from_gold). Set a metric of val_dev/, or stage.gate=null."
    if first and config.interaction.train.calls_per_message == "first":
        yield "interaction.train.from_gold plays gold with all calls of a message. Set calls_per_message=all."
    low, high = resample.keep
    if not (0 <= low < high <= resample.retire <= 1 and 0 <= resample.replace <= 1):
        yield f"stage.resample={resample}: expected shares, with keep as [low, high] and high at most retire."
    corrected = correction.rollout_is or correction.rollout_rs
    if correction.bypass_mode and corrected:
        yield "algorithm.rollout_correction: rollout_is and rollout_rs do nothing with bypass_mode=true. Set it false."
    if (correction.bypass_mode or corrected) and not rollout.calculate_log_probs:
        yield f"algorithm.rollout_correction needs {ROLLOUT}.calculate_log_probs=true."


def precision(config: DictConfig) -> Iterator[str]:
    """On a CPU engine and trainer compute in one number format: nothing corrects for the difference."""
    if config.trainer.device != "cpu":
        return
    policy, formats = config.actor_rollout_ref, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    engines = policy.actor.fsdp_config, policy.ref.fsdp_config
    given = [(engine.get("mixed_precision") or {}).get("param_dtype", "bf16") for engine in engines]
    trained, reference, played = (formats.get(name, name) for name in (*given, policy.rollout.dtype))
    if not trained == reference == played:
        each = f"mixed_precision.param_dtype of actor ({trained}) and ref ({reference}), {ROLLOUT}.dtype={played}"
        yield f"{each}: other probabilities are trained than played. Leave all out, and set launcher.precision."


def lora(config: DictConfig) -> Iterator[str]:
    """An adapter is trained, played and handed on."""
    yield from model_lora(config.actor_rollout_ref.model, MODEL)
    if config.critic.model.get("lora_rank"):
        yield "critic.model.lora_rank: verl's LoRA would keep the critic's new value head at random. Set it to 0."


def model_lora(model: DictConfig, name: str) -> Iterator[str]:
    """The LoRA settings of a model, which the configuration calls `name`, can be trained with FSDP2 and merged."""
    if model.lora.rank:
        yield f"{name}.lora.rank={model.lora.rank} is Megatron's: all weights would be trained. Set {name}.lora_rank."
    targets = str(model.target_modules)
    if model.lora_rank and model.get("target_parameters"):
        yield f"{name}.target_parameters cannot be merged at the end. Name modules, with {name}.target_modules."
    if model.lora_rank and ("lm_head" in targets or "embed_tokens" in targets):
        yield f"{name}.target_modules={targets}: LoRA on embeddings is not merged right. Leave them out."


def trainer_mode(config: DictConfig) -> Iterator[str]:
    """A stage plays and trains in turn, or at the same time, with one of this recipe's trainers."""
    modes, policy, correction = config.trainer.v1, config.actor_rollout_ref, config.algorithm.rollout_correction
    mode, oldest = modes.trainer_mode, modes.sampler.max_off_policy_threshold
    given, rollout = f"trainer.v1.trainer_mode={mode}", policy.rollout
    if mode not in (SYNC, *GROUPS):
        yield f"{given} is verl's own trainer, without gates and metrics. Set trainer=sync, async or separate."
        return
    if policy.hybrid_engine != (mode != SEPARATE):
        yield f"{given} with actor_rollout_ref.hybrid_engine={policy.hybrid_engine}. Set trainer=separate, or neither."
    if mode == SYNC:
        return
    if is_offline(config):
        yield f"{given} with offline.files: nothing is played meanwhile. Set trainer=sync."
    if config.algorithm.filter_groups.enable:
        yield f"{given} with algorithm.filter_groups.enable=true samples without an end. Set one of the two otherwise."
    if not (correction.rollout_is or correction.bypass_mode):
        yield f"{given}: rollouts are older than the policy. Set algorithm.rollout_correction.rollout_is=token."
    if not oldest or oldest < 2 or not 0 <= modes[mode].num_warmup_batches <= 1:
        bound = f"trainer.v1.sampler.max_off_policy_threshold to 2 or more (it is {oldest})"
        yield f"{given}: episodes may get too old. Set {bound}, and trainer.v1.{mode}.num_warmup_batches to 0 or 1."
    if mode != SEPARATE:
        return
    engine = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
    if modes[mode].parameter_sync_step != 1 or config.data.train_batch_size != policy.actor.ppo_mini_batch_size:
        step = f"trainer.v1.{mode}.parameter_sync_step=1"
        yield f"{given} sends weights after each optimizer step. Set MINI_BATCH_SIZE to TRAIN_BATCH_SIZE, and {step}."
    if policy.model.lora_rank > 0 and not OmegaConf.select(policy.model, "lora.merge"):
        yield f"{given} with {MODEL}.lora_rank sends no adapter. Set {MODEL}.lora.merge=true, or trainer=async."
    if (playing := playing_devices(config)) < 1 or playing % engine:
        yield f"{given}: an engine takes {engine} devices. {ROLLOUT}.nnodes x n_gpus_per_node={playing} is no multiple."
    if rollout.checkpoint_engine.backend == "naive":
        yield f"{given}: {ROLLOUT}.checkpoint_engine.backend=naive sends nothing to other cards. Set gloo."


def offline(config: DictConfig) -> Iterator[str]:
    """A stage that learns from stored trajectories: nothing is played, so nothing can be asked that is played for."""
    stage, rollout, correction = config.stage, config.actor_rollout_ref.rollout, config.algorithm.rollout_correction
    if not is_offline(config):
        if stage.name == "offline":
            yield f"offline.files is missing. Set it to {FORMS}."
        if (config.offline.rewards, config.offline.old_log_probs) != ("steps", "start"):
            yield "offline.rewards and offline.old_log_probs do nothing without offline.files. Leave them out."
        return
    metric = str((stage.gate or {}).get("metric", "critic/score/mean"))
    for asked, remedy in (
        (config.environment.guard is not None, "environment.guard=null"),
        (config.algorithm.filter_groups.enable, "algorithm.filter_groups.enable=false"),
        (stage.gate and metric.startswith(("val", "train/", "critic/score", "critic/rewards")), "stage.gate=null"),
        (stage.handover == "best", "stage.handover=last"),
        (stage.resample.pool, "stage.resample.pool=null"),
        (stage.over_budget == "leave_out", "stage.over_budget=keep; what is too long is left out anyway"),
        (config.interaction.train.get("from_gold"), "interaction.train.from_gold=null"),
        (config.interaction.overlong.penalty > 0, "interaction.overlong.penalty=0"),
        (config.data.custom_cls.path not in (None, f"pkg://{STORED}"), "data.custom_cls.path=null"),
    ):
        if asked:
            yield f"offline.files: nothing is played. Set {remedy}."
    if not is_grouped(config.algorithm) and rollout.n != 1:
        yield f"{ROLLOUT}.n={rollout.n}: with offline.files and this estimator a row is one trajectory. Set it to 1."
    continued = config.actor_rollout_ref.model.lora_adapter_path or (stage.adapter == "continue" and stage.previous)
    if config.offline.old_log_probs == "start" and (continued or correction.bypass_mode or correction.rollout_rs):
        other = "an adapter to train further, bypass_mode or rollout_rs"
        yield f"offline.old_log_probs=start does not go with {other}. Set offline.old_log_probs=step, or drop that."


CHECKS = (algorithm, batches, split_models, sampling, precision, lora, trainer_mode, offline, teacher.settings)


def _world(config: DictConfig) -> int:
    return int(config.trainer.n_gpus_per_node * config.trainer.nnodes)


def playing_devices(config: DictConfig) -> int:
    """Devices that only play; 0 where those that train do."""
    rollout = config.actor_rollout_ref.rollout
    return int(rollout.n_gpus_per_node * rollout.nnodes) if config.trainer.v1.trainer_mode == SEPARATE else 0


def devices(config: DictConfig) -> int:
    """That a run takes: those that train, those that play where they are others, and the teacher's."""
    return _world(config) + playing_devices(config) + teacher_cards(config)


def _trained(config: DictConfig) -> list[tuple[str, DictConfig, str]]:
    """Key, settings and engine's key of each model that is trained."""
    actor = (ACTOR, config.actor_rollout_ref.actor, "fsdp_config")
    return [actor, ("critic", config.critic, "fsdp")] if config.critic.enable is True else [actor]


def fill_in(config: DictConfig) -> list[str]:
    """Set what follows from other settings: loggers, agent loops, stored data, micro-batches. Returns notes.

    Micro-batches decide memory and time alone. One that is filled by tokens has to hold the longest episode: verl would
    end the run at the first that is longer.
    """
    agent, policy, notes = config.actor_rollout_ref.rollout.agent, config.actor_rollout_ref, []
    agent.agent_loop_config_path = agent.agent_loop_config_path or str(CONFIG_DIR / "agent_loops.yaml")
    if "file" not in (loggers := as_list(config.trainer.logger)):  # gates, tables and curves read what this one writes
        config.trainer.logger = [*loggers, "file"]
    if is_offline(config):
        files = [str(path) for path in found(as_list(config.offline.files))]
        with open_dict(config):
            config.data.train_files = config.data.val_files = files
            config.data.custom_cls = {"path": f"pkg://{STORED}", "name": "StoredRows"}
            agent.agent_loop_manager_class = f"{STORED}.StoredTrajectories"
        config.data.val_batch_size = 1  # of a data set that verl makes and nobody asks for a row
        config.data.shuffle = True  # anew in each epoch, by data.seed; the CPU profile has it off for its one batch
        config.trainer.test_freq, config.trainer.val_before_train = -1, False
        has_reference = policy.actor.use_kl_loss or config.algorithm.use_kl_in_reward
        if config.offline.old_log_probs == "start" and not has_reference:
            policy.actor.use_kl_loss, policy.actor.kl_loss_coef = True, 0.0  # verl's reference policy, without a KL
    teacher.fill_in(config)
    actor, ref = (sequence_parts(part, "fsdp_config") for part in (policy.actor, policy.ref))
    longest = config.data.max_prompt_length + config.data.max_response_length
    for key, parts in (
        (f"{ACTOR}.ppo_max_token_len_per_gpu", actor),
        (f"{ROLLOUT}.log_prob_max_token_len_per_gpu", actor),
        (f"{REF}.log_prob_max_token_len_per_gpu", ref),
        ("critic.ppo_max_token_len_per_gpu", critic := sequence_parts(config.critic, "fsdp")),
        ("critic.ppo_infer_max_token_len_per_gpu", critic),
    ):
        least = -(-longest // parts)  # on a CPU a long row is a pass of its own (recipe/cpu/engine.py)
        if config.trainer.device != "cpu" and OmegaConf.select(config, key) < least:
            OmegaConf.update(config, key, least)
            notes.append(f"{key}={least}: the tokens of the longest prompt and response")
    whole, mini = config.data.train_batch_size, policy.actor.ppo_mini_batch_size
    for by_tokens, key, prompts in (
        (policy.ref.log_prob_use_dynamic_bsz, f"{REF}.log_prob_micro_batch_size_per_gpu", whole),
        (policy.actor.use_dynamic_bsz, f"{ACTOR}.ppo_micro_batch_size_per_gpu", mini),
        (policy.rollout.log_prob_use_dynamic_bsz, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", whole),
    ):
        size, rows = OmegaConf.select(config, key), prompts * policy.rollout.n // max(1, _world(config) // actor)
        if not by_tokens and size and rows % size:
            OmegaConf.update(config, key, next(fit for fit in range(min(size, rows), 0, -1) if rows % fit == 0))
            notes.append(f"{key}={OmegaConf.select(config, key)}: {size} does not divide {rows} trajectories of a GPU")
    return notes


def fit_bucket(config: DictConfig, model: Architecture | None) -> None:
    """Raise the bucket in which weights go to the engine, so that it holds the largest of them: the embedding."""
    policy = config.actor_rollout_ref
    if model:
        least = -(-model.embedding * BYTES[policy.actor.fsdp_config.model_dtype] // 2**20)
        bucket = policy.rollout.checkpoint_engine.update_weights_bucket_megabytes
        policy.rollout.checkpoint_engine.update_weights_bucket_megabytes = max(bucket, least)


def notes(config: DictConfig) -> Iterator[str]:
    """What is set but does nothing, or something else than it seems."""
    actor, policy, stage = config.actor_rollout_ref.actor, config.actor_rollout_ref, config.stage
    loss, mode = actor.policy_loss.loss_mode, config.trainer.v1.trainer_mode
    for key, whole in {"top_p": 1, "top_k": -1, "engine_kwargs.vllm.logits_processors": None}.items():
        if (value := OmegaConf.select(policy.rollout, key)) not in (whole, 0, None):
            yield f"{ROLLOUT}.{key}={value}: the engine plays with other probabilities than are trained. Leave it out"
    for key, (default, live) in DEAD.items():
        if (value := OmegaConf.select(config, key)) != default and value != OmegaConf.select(config, live):
            yield f"{key}={value} does nothing. Set {live}"
    if loss in ("gspo", "cispo", "appo_step") and on_policy(config):
        batch = config.data.train_batch_size
        yield f"the loss {loss} is plain policy gradient with one update a step: set MINI_BATCH_SIZE below {batch}"
    if loss == "gspo" and max(actor.clip_ratio_low, actor.clip_ratio_high) > 0.05:  # the paper clips at .0004
        yield f"the loss gspo never clips with clip_ratio_high={actor.clip_ratio_high}: algorithm=gspo sets the paper's"
    if not config.interaction.overlong.train and actor.loss_agg_mode.startswith("seq-mean"):
        yield f"{ACTOR}.loss_agg_mode={actor.loss_agg_mode} divides by episodes that overlong.train=false leaves out"
    if config.interaction.record_tokens and config.interaction.record_dir is None:
        yield "interaction.record_tokens=true writes nothing with interaction.record_dir=null: set a folder"
    if policy.model.lora_adapter_path and (actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        yield "the KL is that to the model without the adapter that this stage begins with; see stage.adapter=new"
    if mode in GROUPS:
        oldest = config.trainer.v1.sampler.max_off_policy_threshold
        yield f"{GROUPS[mode]}: episodes may span {oldest} versions of the policy (training/off_policy/...)"
    metric = (stage.gate or {}).get("metric", "critic/score/mean")
    if config.algorithm.filter_groups.enable and stage.gate and not metric.startswith("val"):
        yield f"stage.gate reads {metric}, from which dynamic sampling takes solved tasks: set a metric of val_dev/"
