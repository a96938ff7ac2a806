"""The model that a stage starts from, its adapter, and whether tokenizer, template and lengths fit what is played.

`start` and `adapter` import nothing heavy; the others import transformers.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from interaction.protocol import Message, Protocol
from interaction.trajectory import closing_ids, stop_ids
from recipe.cpu import smollm2
from recipe.files import Damaged, PreflightError, one_line
from recipe.settings import is_offline
from recipe.stage.weights import broken_weights, changed, other_base, read_adapter

MODEL = "actor_rollout_ref.model"
NEW = "or train a new one with stage.adapter=new"
MADE_UP: list[Message] = [
    {"role": "system", "content": "made-up rules"},
    {"role": "user", "content": "made-up request"},
]
LATER: Message = {"role": "user", "content": "Results: [1]"}


def start(config: DictConfig, notes: list[str]) -> Iterator[str]:
    """Set the model to start from, and the adapter to train further; `~` is written out.

    That is MODEL or actor_rollout_ref.model.path, else what the stage before exported: its merged model, or with
    `stage.adapter=continue` its adapter and the base under it. Of the first stage it is the warm start of its run, else
    the tiny policy. verl loads an adapter with the rank, alpha and modules of its own files.
    """
    model, stage, run = config.actor_rollout_ref.model, config.stage, Path(config.paths.run)
    if model.lora_adapter_path is None and stage.adapter == "continue" and stage.previous:
        model.lora_adapter_path = str(run / stage.previous / "adapter")
    adapter = None
    if model.lora_adapter_path is not None:
        model.lora_adapter_path = os.path.expanduser(str(model.lora_adapter_path))
        try:
            adapter = read_adapter(Path(model.lora_adapter_path))
        except Damaged as error:
            yield f"{MODEL}.lora_adapter_path={model.lora_adapter_path}: {error}. Set another, {NEW}."
            return
        model.path = model.path or adapter.base.model
        modules = sorted({name.split(".lora_")[0].rsplit(".", 1)[-1] for name in adapter.shapes})
        notes.append(f"LoRA: rank {adapter.rank}, alpha {adapter.alpha} and modules are those of the adapter")
        model.lora_rank, model.lora_alpha, model.target_modules = adapter.rank, adapter.alpha, modules
    if model.path is None:
        places, how = [warm_started(config)], "run `bash run_sft.sh` first"
        if stage.previous:
            places, how = [run / stage.previous / "hf"], f"run the stage {stage.previous} with the same RUN"
        elif tiny := config.paths.get("tiny_policy"):
            places.append(Path(tiny))
        model.path = next((str(path) for path in places if (path / "config.json").is_file()), None)
        if model.path is None:
            yield f"no model to start from: {places[-1]} is not there. Set MODEL=/path/to/huggingface/folder, or {how}."
            return
    model.path = start_model(str(model.path))
    if adapter and (fault := other_base(adapter, model.path)):
        yield f"the adapter in {adapter.folder} is another model's: {fault}. Set MODEL to its own, {NEW}."


def warm_started(config: DictConfig) -> Path:
    """Where `bash run_sft.sh` leaves its model with the same RUN, if it was given one."""
    return Path(config.paths.run) / f"stage0_{config.stage.get('warm_start') or 'sft'}" / "hf"


def start_model(given: str, name: str = "MODEL") -> str:
    """The path of a model folder with `~` written out, or a hub id as it is; `smollm2` is made if it is not there.

    Args:
        name: of the setting.

    Raises:
        PreflightError: it is neither, or its weights are not whole.
    """
    if given == smollm2.NAME:
        return str(smollm2.folder())
    remedy = f"Set {name} to a Hugging Face folder, or to a hub id such as Qwen/Qwen2.5-7B-Instruct."
    path = Path(os.path.expanduser(given))  # Path's own raises for a user that is not there
    if os.path.isdir(path):
        if fault := broken_weights(path):
            raise PreflightError(f"{given} is not a whole model: {fault}. {remedy}")
        return str(path)
    if given.startswith(("/", ".", "~")):
        raise PreflightError(f"{given} is no folder. {remedy}")
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(given, "config.json", etag_timeout=5)
    except Exception as error:
        raise PreflightError(f"{given} is no folder, and the hub gives nothing: {one_line(error)}. {remedy}") from error
    return given


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model folder or hub id.

    Raises:
        PreflightError: it cannot be read, or has no end of a message or no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        raise PreflightError(f"the tokenizer of {path} cannot be read: {one_line(repr(error))}.") from error
    if tokenizer.eos_token_id is None or not tokenizer.chat_template:
        lacks = "eos_token" if tokenizer.eos_token_id is None else "chat template"
        raise PreflightError(f"the tokenizer of {path} has no {lacks}. Take the instruct version of the model.")
    return tokenizer


def load_settings(path: str) -> Any:
    """The text model's configuration, as transformers reads config.json.

    Raises:
        PreflightError: it cannot.
    """
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(path).get_text_config()
    except Exception as error:
        raise PreflightError(f"config.json of {path} cannot be used: {one_line(repr(error))}.") from error


def weights(path: str) -> Iterator[str]:
    """The weights are those of the model that config.json names; missing ones would start at random without a word."""
    from recipe.stage.export import misfit

    folder = Path(path).expanduser()
    if folder.is_dir() and (fault := changed(folder) or misfit(folder, surplus=False)):
        yield f"the model in {path} is not whole: {fault}. If a stage left it, start that stage again."


def context(config: DictConfig, settings: Any) -> Iterator[str]:
    """The model has positions for the whole context. verl says so too, a minute after the start."""
    data, longest = config.data, config.actor_rollout_ref.rollout.max_model_len
    both, plays = data.max_prompt_length + data.max_response_length, not is_offline(config)
    given = config.actor_rollout_ref.model.override_config.get("max_position_embeddings")
    positions = given or getattr(settings, "max_position_embeddings", None)
    needed = max(both, longest or 0) if plays else longest or both
    if isinstance(positions, int) and needed > positions:
        yield f"the model has {positions} positions, {needed} tokens are asked for. Lower max_model_len and lengths."
    if plays and longest and both > longest:
        yield f"data.max_prompt_length + max_response_length={both} is more than max_model_len={longest}. Lower one."


def vocabulary(tokenizer: Any, settings: Any) -> Iterator[str]:
    """The model has an embedding for what the tokenizer makes of text and template, if not for every added token."""
    added = (number for token, number in tokenizer.get_added_vocab().items() if token in str(tokenizer.chat_template))
    ids = [tokenizer.eos_token_id, tokenizer.vocab_size - 1, *added]
    if max(ids) >= settings.vocab_size:
        size = settings.vocab_size
        yield f"the tokenizer makes ids up to {max(ids)}, and config.json has vocab_size={size}. Take the model's own."


def protocol(tokenizer: Any, protocol: Protocol) -> Iterator[str]:
    """What the protocol asks the model to write comes back from its tokens, decoded as the agent loop does."""
    for example in protocol.examples():
        text = tokenizer.decode(tokenizer.encode(example, add_special_tokens=False), skip_special_tokens=True)
        if protocol.parse(text) != protocol.parse(example):
            said = f"does not survive the tokenizer: its tags are special tokens. {text[:80]!r} is left. Choose another"
            yield f"interaction.protocol={protocol.name} {said}, or mark them as not special in tokenizer_config.json."
            return


def template(
    tokenizer: Any, protocol: Protocol, kwargs: Mapping[str, Any], notes: list[str], from_gold: bool = False
) -> Iterator[str]:
    """A conversation can be continued with the chat template, token by token. A rollout would fail after minutes.

    verl renders each message of the environment on its own, behind a made-up request, and appends the tokens.

    Args:
        kwargs: `data.apply_chat_template_kwargs`, which verl gives to the template.
        from_gold: gold's messages are written behind the header too.
    """

    def render(messages: list[Message], header: bool = False) -> str:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=header, **kwargs)

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    try:
        before, after = render(MADE_UP), render([*MADE_UP, LATER], header=True)
        header = render(MADE_UP, header=True).removeprefix(before)
        closing = closing_ids(lambda messages: ids(render(messages)))
    except Exception as error:  # a template may raise anything
        yield f"the chat template cannot be used: {one_line(repr(error))}."
        return
    if lost := [message["role"] for message in (*MADE_UP, LATER) if message["content"] not in after]:
        yield f"the chat template leaves out the text of a message of the role {lost[0]}. Take another template."
    if not header or not after.endswith(header):
        yield "the chat template writes no header for the model's next message (add_generation_prompt). Take another."
    if ids(after)[: len(ids(before))] != ids(before):
        yield "the chat template changes what it has written when a message follows. Take another."
    if header.rstrip().endswith("<think>"):  # then a message begins inside the thought
        if from_gold:
            yield "the template opens <think>, and gold's messages would open it again. Set from_gold=null."
        for example in protocol.examples():
            meant, action = protocol.parse(example), example.partition("</think>")[2] or example
            read = protocol.parse(f"a thought\n</think>\n\n{action.strip()}")
            if (read.calls, read.answer) != (meant.calls, meant.answer):
                yield f"the template opens <think>: {protocol.name} does not read that. Set interaction.protocol=hermes"
                break
    answer = {"role": "assistant", "content": protocol.render_answer("an earlier thought", "done")}
    whole = render([*MADE_UP, answer, LATER, answer])
    dropped = whole.count("an earlier thought") < 2 * answer["content"].count("an earlier thought")
    end = f"chat template: messages end with {tokenizer.decode(closing)!r}"
    unseen = "; no token stops the engine there" * bool(closing and not stop_ids(tokenizer, closing))
    notes.append(end + unseen + "; drops earlier thoughts, which rollouts keep" * dropped)
