"""The teacher of on-policy distillation: verl's own, served beside the rollouts on devices of its own.

verl asks nothing of it: the tokens of another tokenizer would be scored as if they were the model's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.protocol import Message
from recipe.memory import TEACHER, TOP, longest_text, teacher_cards
from recipe.preflight import model
from recipe.settings import is_offline

PATH = f"{TEACHER}.model_path"


def settings(config: DictConfig) -> Iterator[str]:
    """A teacher is named where one is asked for, and only there; it has whole engines, while others play and train."""
    distillation, given = config.distillation, OmegaConf.select(config, PATH)
    if not distillation.enabled:
        if given is not None:
            yield f"{PATH} does nothing without algorithm=opd, opd_topk or opd_grpo. Choose one, or leave it out."
        return
    if given is None:
        yield f"distillation needs a teacher. Set {PATH} to a model with the tokenizer of MODEL."
    if len(distillation.teacher_models) > 1:
        yield f"distillation.teacher_models: {len(distillation.teacher_models)} are named. Leave teacher_model alone."
    engine = OmegaConf.select(config, f"{TEACHER}.inference")
    size, cards = engine.tensor_model_parallel_size * engine.data_parallel_size, teacher_cards(config)
    if cards < 1 or cards % size:
        yield f"{TEACHER} takes {size} devices an engine; distillation.nnodes x n_gpus_per_node={cards} is no multiple."
    loss = distillation.distillation_loss
    if (priced := loss.loss_mode in ("k1", "kl")) != loss.use_policy_gradient:  # k2 punishes what the teacher likes
        said = f"loss_mode={loss.loss_mode} is a {'price of tokens, no loss' if priced else 'loss, no price of tokens'}"
        yield f"distillation.distillation_loss: {said}. Set use_policy_gradient={str(priced).lower()}."
    for name in ("loss_max_clamp", "log_prob_min_clamp"):
        if loss[name] is not None and not (priced and name == "loss_max_clamp"):
            yield f"distillation.distillation_loss.{name}: unread, or no gradient beyond it. Set it to null."
    if loss.loss_mode == TOP and config.actor_rollout_ref.model.use_fused_kernels:
        yield f"loss_mode={TOP} needs all logits. Set actor_rollout_ref.model.use_fused_kernels=false."
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    for asked, remedy in (
        (algorithm.filter_groups.enable, "algorithm.filter_groups.enable=false"),
        (algorithm.use_kl_in_reward, "algorithm.use_kl_in_reward=false"),
        (actor.use_kl_loss, "actor_rollout_ref.actor.use_kl_loss=false"),
        (actor.entropy_coeff, "actor_rollout_ref.actor.entropy_coeff=0"),
        (config.interaction.overlong.penalty, "interaction.overlong.penalty=0"),
        (loss.distillation_loss_coef != 1, "distillation.distillation_loss.distillation_loss_coef=1"),
    ):
        if asked and not loss.use_task_rewards:
            yield f"{remedy.partition('=')[0]} acts on rewards or their loss. Set {remedy}, or algorithm=opd_grpo."
    if (heat := config.actor_rollout_ref.rollout.temperature) != 1:
        yield f"actor_rollout_ref.rollout.temperature={heat}: a teacher's log-probabilities are those at 1. Set 1.0."
    if is_offline(config) or config.trainer.v1.trainer_mode != "sync":
        yield "distillation.enabled=true: the teacher scores what is played. Leave out offline.files and trainer."


def fill_in(config: DictConfig) -> None:
    """Set the teacher's context, where it has none, to the longest episode."""
    if config.distillation.enabled and OmegaConf.select(config, f"{TEACHER}.inference.max_model_len") is None:
        OmegaConf.update(config, f"{TEACHER}.inference.max_model_len", longest_text(config))


def start(config: DictConfig) -> Iterator[str]:
    """Set the teacher's path, as that of the model; what counts memory then finds the config.json of a hub id."""
    if config.distillation.enabled:
        OmegaConf.update(config, PATH, model.start_model(str(OmegaConf.select(config, PATH)), PATH))
    yield from ()


def fits(
    config: DictConfig, tokenizer: Any, learner: Any, kwargs: Mapping[str, Any], notes: list[str]
) -> Iterator[str]:
    """Every token of the model has the same id in the teacher, which has positions for the longest episode.

    Args:
        learner: settings of the model that learns.
    """
    if not config.distillation.enabled:
        return
    path = str(OmegaConf.select(config, PATH))
    shape, own, known = model.load_settings(path), model.load_tokenizer(path), tokenizer.get_vocab()
    ids = own.get_vocab()
    yield from model.weights(path)
    theirs, ours = min(len(own), shape.vocab_size), min(len(tokenizer), learner.vocab_size)
    if config.distillation.distillation_loss.loss_mode == TOP and theirs > ours:  # no other id has a log-probability
        said = f"the teacher {path} knows {theirs} tokens, the model {ours}: it cannot learn how likely the last are"
        yield f"{said}. Set algorithm=opd."
    if other := sorted(token for token, number in known.items() if ids.get(token) != number):
        yield f"the teacher {path} has {len(other)} of {len(known)} tokens otherwise, as {other[0]!r}. Take another."
    elif max(known.values()) >= shape.vocab_size:
        yield f"the teacher {path} has no embedding for the last tokens: vocab_size={shape.vocab_size}. Take another."
    longest, positions = longest_text(config), getattr(shape, "max_position_embeddings", None)
    if isinstance(positions, int) and longest > positions:
        yield f"the teacher has {positions} positions, the longest episode takes {longest}. Lower data.max_*_length."
    answered: list[Message] = [*model.MADE_UP, {"role": "assistant", "content": "made-up answer"}]

    def rendered(by: Any) -> tuple[str, str]:  # a hybrid writes an empty thought before its last answer alone
        later = by.apply_chat_template([*answered, model.LATER], tokenize=False, add_generation_prompt=True, **kwargs)
        return by.apply_chat_template(answered, tokenize=False, **kwargs), later

    try:
        same = rendered(tokenizer) == rendered(own)
    except Exception:  # a template may raise anything, and nothing else renders the teacher's
        same = False
    if not same:
        notes.append(f"teacher: the chat template of {path} is another: it scores texts that it was not trained on")
