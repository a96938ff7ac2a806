"""Checks that need the model's folder: its weights, what its tokenizer makes of the protocol, whether prompts fit.

transformers is imported here, which takes seconds.
"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from omegaconf import DictConfig

from interaction.plain_text import PlainText
from interaction.protocol import Protocol
from recipe.errors import PreflightError
from recipe.stage.integrity import SUMS, changed
from recipe.trajectories import is_offline
from recipe.typed import shown

LONGEST = 8
"""Prompts of a file that are tokenized, those with the most characters."""


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model folder or hub id.

    Raises:
        PreflightError: it cannot be read, or has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        words = " ".join(str(error).split())
        raise PreflightError(
            f"the tokenizer of {path} cannot be read: {type(error).__name__}: {words[:300]}. "
            "Save it beside the weights with tokenizer.save_pretrained(folder)."
        ) from error
    if tokenizer.eos_token_id is None:
        raise PreflightError(
            f"the tokenizer of {path} has no eos_token, with which a message ends. Name it in tokenizer_config.json."
        )
    if not tokenizer.chat_template:
        raise PreflightError(
            f"the tokenizer of {path} has no chat template, so messages cannot be written for it. Take the instruct "
            "version of the model, or put a chat_template.jinja into its folder."
        )
    return tokenizer


def check_weights(path: str) -> None:
    """The weights in a model folder are those of the model that its config.json names. A hub id is not looked at.

    Raises:
        PreflightError: some are missing, and would start at random without a word, or differ from what was exported.
    """
    from recipe.stage.export import PEFT_PREFIX, misfit

    folder = Path(path).expanduser()
    if folder.is_dir() and (fault := changed(folder)):
        raise PreflightError(
            f"the model in {path} is damaged: {fault}. If a stage left it, start that stage again: it exports its "
            f"model anew, without a step. If you changed it yourself, delete {folder / SUMS}."
        )
    if folder.is_dir() and (fault := misfit(folder, surplus=False)):
        raise PreflightError(
            f"the model in {path} is not whole: {fault}. "
            + (
                f"These are the names of LoRA weights that were not merged. If a stage left them, delete "
                f"{folder.parent / 'done.json'} and start that stage again: it exports them merged, without a step."
                if PEFT_PREFIX in fault
                else "Set MODEL to a folder with all its weights."
            )
        )


def check_protocol(tokenizer: Any, protocol: Protocol, model: str) -> None:
    """What the protocol asks the model to write must come back from its tokens.

    Raises:
        PreflightError: a tag or other text is lost when tokens are decoded as the agent loop does.
    """
    for example in protocol.examples():
        ids = tokenizer.encode(example, add_special_tokens=False)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        if protocol.parse(text) != protocol.parse(example):
            raise PreflightError(
                f"interaction.protocol={protocol.name} does not survive the tokenizer of {model}: {example[:120]!r} "
                f"comes back as {text[:120]!r}. Its tags are special tokens there, which decoding drops: choose "
                "another interaction.protocol, or mark these tokens as not special in tokenizer_config.json."
            )


def load_settings(path: str) -> Any:
    """The text model's configuration, as transformers reads config.json.

    Raises:
        PreflightError: it cannot.
    """
    from transformers import AutoConfig

    try:
        settings = AutoConfig.from_pretrained(path)
    except Exception as error:
        words = " ".join(str(error).split())
        raise PreflightError(
            f"config.json of {path} cannot be used: {type(error).__name__}: {words[:300]}. Set MODEL to a model that "
            "the installed transformers knows."
        ) from error
    return getattr(settings, "text_config", settings)


def check_context(config: DictConfig, settings: Any) -> None:
    """The model has positions for the whole context. verl asks so too, in its workers, a minute after the start.

    Args:
        settings: as `load_settings` returns them.

    Raises:
        PreflightError: it has not.
    """
    model, data = config.actor_rollout_ref.model, config.data
    positions = model.override_config.get("max_position_embeddings") or getattr(
        settings, "max_position_embeddings", None
    )
    if isinstance(positions, bool) or not isinstance(positions, int) or positions < 1:
        raise PreflightError(
            f"config.json of {model.path} has max_position_embeddings={shown(positions)}; expected a number of tokens."
        )
    context, both = config.actor_rollout_ref.rollout.max_model_len, "data.max_prompt_length + data.max_response_length"
    wanted = {"actor_rollout_ref.rollout.max_model_len": context}
    if not (context and is_offline(config)):  # what is stored is held to the context as well
        wanted[both] = data.max_prompt_length + data.max_response_length
    for setting, tokens in wanted.items():
        if tokens and tokens > positions:
            raise PreflightError(
                f"{setting}={tokens} is more than the {positions} positions of {model.path} (max_position_embeddings "
                f"in its config.json). Lower {setting.replace(' + ', ' or ')}, or take a model with a longer context."
            )


def check_vocabulary(tokenizer: Any, settings: Any, model: str) -> None:
    """The model has an embedding for what the tokenizer makes of a text and of the chat template.

    Not for every token that was added to it: some published models have a last one for images.

    Raises:
        PreflightError: it has not; the tokenizer is another model's.
    """
    opening = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    ids = [tokenizer.eos_token_id, *tokenizer.encode(opening, add_special_tokens=False), tokenizer.vocab_size - 1]
    size = getattr(settings, "vocab_size", None)
    if isinstance(size, int) and max(ids) >= size:
        raise PreflightError(
            f"the tokenizer of {model} makes ids up to {max(ids)}, and its config.json has vocab_size={size}: it is "
            "another model's. Put the model's own tokenizer into the folder."
        )


def check_lengths(config: DictConfig, tokenizer: Any, files: dict[str, list[str]]) -> str:
    """Prompts, replies and the engine's context fit into each other. Returns a line on the longest prompt.

    Args:
        files: names of the parquet files by key (`train_files`, `val_files`).

    Raises:
        PreflightError: they do not; the message names the settings.
    """
    prompt_limit, response_limit = config.data.max_prompt_length, config.data.max_response_length
    context = config.actor_rollout_ref.rollout.max_model_len
    if context and prompt_limit + response_limit > context:
        raise PreflightError(
            f"data.max_prompt_length={prompt_limit} and data.max_response_length={response_limit} are together more "
            f"than actor_rollout_ref.rollout.max_model_len={context}. Lower one of the first two or raise the last."
        )
    longest, where = 0, ""
    for key, names in files.items():
        for name in names:
            prompts = parquet.read_table(Path(name).expanduser(), columns=["prompt"]).column("prompt").to_pylist()
            prompts.sort(key=lambda messages: sum(len(message["content"]) for message in messages))
            for messages in map(PlainText.of(tokenizer).messages, prompts[-LONGEST:]):
                ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                if len(ids) > longest:
                    longest, where = len(ids), f"data.{key}={name}"
    if longest > prompt_limit and not config.data.filter_overlong_prompts:
        raise PreflightError(
            f"a prompt of {where} has {longest} tokens, more than data.max_prompt_length={prompt_limit}: it is cut "
            f"on the left, and with it the function documentation. Set data.max_prompt_length={longest} or more, or "
            "interaction.docs=signature (with data made for it)."
        )
    note = (
        f", more than data.max_prompt_length={prompt_limit}: such rows are left out" if longest > prompt_limit else ""
    )
    return f"longest prompt {longest} tokens ({where}){note}"
