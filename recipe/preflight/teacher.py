"""The teacher of on-policy distillation: verl's own, served beside the rollouts on devices of its own.

verl asks nothing of it: the tokens of another tokenizer would be scored as if they were the model's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.memory import (
    ENGINE_CONTEXT,
    GB,
    UnknownArchitecture,
    cache_tokens,
    engine_weights,
    load_architecture,
    read_settings,
)
from recipe.preflight import model
from recipe.settings import is_offline

TEACHER = "distillation.teacher_models.teacher_model"
PATH = f"{TEACHER}.model_path"
PROCESS = 2.5 * GB
"""Of its process on a CPU, vLLM's cache included. Measured."""
SCORE_BYTES = 10
"""Of each token and word: vLLM's logits, their log-softmax in float32, and a copy. Beside vLLM's share of the card."""


def settings(config: DictConfig) -> Iterator[str]:
    """A teacher is named where one is asked for, and only there; it has whole engines, while others play and train."""
    distillation, given = config.distillation, OmegaConf.select(config, PATH)
    if not distillation.enabled:
        if given is not None:
            yield f"{PATH} does nothing without algorithm=opd or algorithm=opd_grpo. Choose one, or leave it out."
        return
    if given is None:
        yield f"distillation needs a teacher. Set {PATH} to a model with the tokenizer of MODEL."
    if len(distillation.teacher_models) > 1:
        yield f"distillation.teacher_models: {len(distillation.teacher_models)} are named. Leave teacher_model alone."
    engine = OmegaConf.select(config, f"{TEACHER}.inference")
    size, cards = engine.tensor_model_parallel_size * engine.data_parallel_size, devices(config)
    if cards < 1 or cards % size:
        yield f"{TEACHER} takes {size} devices an engine; distillation.nnodes x n_gpus_per_node={cards} is no multiple."
    loss, filtering = distillation.distillation_loss, config.algorithm.filter_groups.enable
    if loss.loss_mode in ("k1", "kl") and not loss.use_policy_gradient:
        yield f"the gradient of loss_mode={loss.loss_mode} knows nothing of the teacher. Set use_policy_gradient=true."
    if filtering and not loss.use_task_rewards:
        yield "algorithm.filter_groups compares rewards, which algorithm=opd does not use. Set enable to false."
    if (heat := config.actor_rollout_ref.rollout.temperature) != 1:
        yield f"actor_rollout_ref.rollout.temperature={heat}: a teacher's log-probabilities are those at 1. Set 1.0."
    if is_offline(config) or config.trainer.v1.trainer_mode != "sync":
        yield "distillation.enabled=true: the teacher scores what is played. Leave out offline.files and trainer."


def fill_in(config: DictConfig) -> None:
    """Set the teacher's context, where it has none, to the longest episode."""
    if config.distillation.enabled and OmegaConf.select(config, f"{TEACHER}.inference.max_model_len") is None:
        OmegaConf.update(config, f"{TEACHER}.inference.max_model_len", longest_text(config))


def devices(config: DictConfig) -> int:
    """That the teacher takes."""
    distillation = config.distillation
    return int(distillation.nnodes * distillation.n_gpus_per_node) if distillation.enabled else 0


def fits(config: DictConfig, tokenizer: Any, kwargs: Mapping[str, Any], notes: list[str]) -> Iterator[str]:
    """Every token of the model has the same id in the teacher, which has positions for the longest episode.

    Args:
        tokenizer: the model's.
        kwargs: `data.apply_chat_template_kwargs`.
    """
    if not config.distillation.enabled:
        return
    path = model.start_model(str(OmegaConf.select(config, PATH)))
    OmegaConf.update(config, PATH, path)
    shape, own, known = model.load_settings(path), model.load_tokenizer(path), tokenizer.get_vocab()
    ids = own.get_vocab()
    yield from model.weights(path)
    if other := sorted(token for token, number in known.items() if ids.get(token) != number):
        yield f"the teacher {path} has {len(other)} of {len(known)} tokens otherwise, as {other[0]!r}. Take another."
    elif max(known.values()) >= shape.vocab_size:
        yield f"the teacher {path} has no embedding for the last tokens: vocab_size={shape.vocab_size}. Take another."
    longest, positions = longest_text(config), getattr(shape, "max_position_embeddings", None)
    if isinstance(positions, int) and longest > positions:
        yield f"the teacher has {positions} positions, the longest episode takes {longest}. Lower data.max_*_length."
    talk = [*model.MADE_UP, model.LATER]
    told, heard = (each.apply_chat_template(talk, tokenize=False, **kwargs) for each in (tokenizer, own))
    if told != heard:
        notes.append(f"teacher: the chat template of {path} is another one: it scores texts that it was not trained on")


def longest_text(config: DictConfig) -> int:
    """Tokens that the teacher reads at most, and the one that vLLM makes it write."""
    return int(config.data.max_prompt_length + config.data.max_response_length + 1)


def gpu_memory(config: DictConfig, card: float, notes: list[str]) -> Iterator[str]:
    """The teacher fits its cards, by estimate."""
    if not config.distillation.enabled:
        return
    try:
        teacher = load_architecture(str(OmegaConf.select(config, PATH)))
    except UnknownArchitecture as error:
        notes.append(f"GPU memory of the teacher: {error}")
        return
    engine, longest = OmegaConf.select(config, f"{TEACHER}.inference"), longest_text(config)
    served = replace(
        read_settings(config, card),
        utilization=engine.gpu_memory_utilization,
        tensor_parallel=engine.tensor_model_parallel_size,
        batched_tokens=engine.max_num_batched_tokens,
    )
    scores, room = SCORE_BYTES * engine.max_num_batched_tokens * teacher.vocabulary, cache_tokens(teacher, served)
    beside = scores + ENGINE_CONTEXT
    notes.append(
        f"teacher: {devices(config)} cards of {card / GB:.1f} GB, weights {engine_weights(teacher, served) / GB:.1f}, "
        f"{max(0.0, room):,.0f} tokens of cache, {beside / GB:.1f} beside vLLM's share, by estimate"
    )
    key = f"{TEACHER}.inference"
    if room < longest:
        yield f"the teacher has room for {max(0, int(room))} of {longest} tokens. Set {key}.tensor_model_parallel_size."
    elif beside > (1 - served.utilization) * card:
        yield f"the teacher takes {beside / GB:.1f} GB beside its share. Lower {key}.max_num_batched_tokens."


def host_memory(config: DictConfig) -> float:
    """Bytes that it takes on a CPU beside all else: a process, vLLM's cache, weights as they are and packed."""
    if not config.distillation.enabled or config.trainer.device != "cpu":
        return 0.0
    try:
        teacher = load_architecture(str(OmegaConf.select(config, PATH)))
    except UnknownArchitecture:
        return PROCESS
    return PROCESS + 8 * teacher.parameters
