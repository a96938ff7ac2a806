"""Conversations for the warm start: read from files, checked, held out in part, cut to length, and written for verl.

    {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}], "id": "oslo-1"}

All files are checked before `<stage>/data` gets `train.parquet`, `val.parquet` and `counts.json`.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from omegaconf import DictConfig, OmegaConf

from data_prep.rows import SFT_SCHEMA, write_table
from interaction.plain_text import PlainText
from interaction.protocol import Message, Protocol, get_protocol
from recipe.files import Damaged, PreflightError, check_manifest, one_line, shown, write_atomic
from recipe.offline.tool_calls import RESULTS, in_protocol
from recipe.settings import as_list

ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user", "function": "user"}
"""Role in a file -> role in training. Results are messages of the user, as in a rollout."""
QUERY = ("query_id", "query", "task_id")
"""Fields that conversations of one query or task have in common, in whatever file."""
NOT_READ = ("tools", "functions", "enable_thinking")
"""Fields of other programs' conversations that would change what the chat template writes."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON can hold and a tokenizer cannot."""
SHOWN = 20
"""Mistakes that are printed."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, in the roles that a chat template knows."""

    place: str
    """File, and line or row of it."""
    messages: tuple[Message, ...]
    queries: frozenset[tuple[str, ...]] = frozenset()
    """What it has in common with others of its query: each the name of a field, and what it says."""

    @property
    def same(self) -> str:
        """A hash of its messages."""
        texts = [[message["role"], message["content"]] for message in self.messages]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    @property
    def opening(self) -> str:
        """A hash of the messages before the model's first one."""
        roles = [message["role"] for message in self.messages]
        return replace(self, messages=self.messages[: roles.index("assistant")]).same


@dataclass(frozen=True)
class Sides:
    """Conversations to train on, and to validate on."""

    train: list[Conversation]
    val: list[Conversation]
    counts: dict[str, int] | None = None
    """How many there are of each, and how many were cut and left out; None before `arrange`."""


# Reading.


def read_sides(config: DictConfig) -> Sides:
    """All conversations of `data.train_files` and `data.val_files`. None is in both."""
    data = config.data
    if data.val_share is not None and data.val_files:
        raise PreflightError("data.val_share: with data.val_files set it to null.")
    if data.use_dynamic_bsz and data.max_length > (most := data.max_token_len_per_gpu):
        raise PreflightError(f"data.max_token_len_per_gpu={most} is below data.max_length={data.max_length}. Raise it.")
    if OmegaConf.select(data, "custom_cls.path"):
        raise PreflightError("data.custom_cls: conversations are read by this project. Set data.custom_cls.path=null.")
    protocol = get_protocol(data.protocol, docs=data.docs) if data.protocol else None
    train = read_conversations(as_list(data.train_files), protocol=protocol)
    val = read_conversations(as_list(data.val_files), "val_files", protocol) if data.val_files else []
    if both := on_both(train, val):
        said = f"are also in data.train_files, or of the same query ({both[0][0]} and {both[0][1]})"
        raise PreflightError(f"{len(both)} of {len(val)} rows of data.val_files {said}. Set data.val_share instead.")
    return Sides(train, val)


def read_conversations(
    names: Sequence[str], key: str = "train_files", protocol: Protocol | None = None
) -> list[Conversation]:
    """All conversations of files of one side; those with tools or calls in the words of the protocol, if there is one.

    Prints what is wrong with them, and raises PreflightError.
    """
    found, mistakes, not_read, written, cut = list[Conversation](), list[str](), 0, 0, 0
    for name in names:
        path = Path(os.path.expanduser(name))
        made = "Make it (docs/train.md#data-files)" if name.endswith(".parquet") else "Mend it"
        try:
            if path.suffix not in (".jsonl", ".parquet"):
                raise Damaged("expected .jsonl or .parquet")
            check_manifest(path)
            for place, row in _rows(path):
                try:
                    row, left_out = in_protocol(row, protocol, path.suffix == ".parquet") if protocol else (row, None)
                    faults = [*_faults(row)]
                except ValueError as error:
                    faults = [str(error)]
                mistakes += [f"{place}, {fault}" for fault in faults]
                if not faults:
                    found.append(_conversation(path, place, row))
                    written, cut = written + (left_out is not None), cut + (left_out or 0)
                    not_read += any(row.get(name) not in (None, []) for name in NOT_READ)
        except (Damaged, OSError, ValueError, pa.ArrowException) as error:
            raise PreflightError(f"data.{key}: {path} cannot be read: {error}. {made}, or set data.{key}.") from error
    if mistakes:
        print(*(f"MISTAKE    {mistake}" for mistake in mistakes[:SHOWN]), sep="\n", flush=True)
        raise PreflightError(f"data.{key}: {len(mistakes)} mistakes, listed above, the first {mistakes[0]}")
    if not found:
        raise PreflightError(f"data.{key}={','.join(names)} has no rows. {made}, or set data.{key}.")
    if protocol and not written:
        raise PreflightError(f"data.protocol={protocol.name}: data.{key} has no tools or tool_calls. Set it to null.")
    if protocol and cut:
        said = f"messages have a thought or words beside calls, for which {protocol.name} has no place: left out"
        print(f"NOTE       {cut} {said}", flush=True)
    if not_read:
        said = f"have {' or '.join(NOT_READ)}, not read: set data.protocol, or name the functions in the system message"
        print(f"NOTE       {not_read} of the {len(found)} conversations of data.{key} {said}", flush=True)
    return found


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Place and content of each row or line; a text is what is wrong with a line."""
    if path.suffix == ".parquet":
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            rows = (row for batch in file.iter_batches(batch_size=256) for row in batch.to_pylist())
            yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows))
    else:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield f"{path}, line {number}", json.loads(line)
                    except (ValueError, RecursionError) as error:
                        yield f"{path}, line {number}", f"is not JSON: {error}"


def _faults(row: Any) -> Iterator[str]:
    """What a model could not learn from a conversation, or would learn otherwise than it was meant."""
    messages = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        yield f"{row if isinstance(row, str) else shown(messages)}; expected an object with a list of messages"
        return
    roles = [message.get("role") for message in messages]
    if "assistant" not in roles[1:] or roles[0] == "assistant" or "system" in roles[1:]:
        yield "messages: expected one of the assistant, after a message that it answers, and a system message first"
    for number, (message, role) in enumerate(zip(messages, roles, strict=True)):
        content, before = message.get("content"), roles[number - 1] if number else None
        if (role in RESULTS and before != "assistant") or (role == "user" and before in RESULTS):
            expected = "the assistant's calls, all their results in one message, as the protocol writes it"
            yield f"messages[{number}]: {role} after {before or 'nothing'}; expected {expected}"
        if role not in [*ROLES]:
            yield f"messages[{number}].role: is {shown(role)}; expected one of {', '.join(ROLES)}"
        if message.get("tool_calls") or message.get("function_call"):
            yield f"messages[{number}]: has calls beside its text. Set data.protocol, in which they are written"
        elif not isinstance(content, str) or not content.strip() or SURROGATE.search(content):
            yield f"messages[{number}].content: is {shown(content)}; expected a text"
        if role == "assistant" and message.get("weight", 1) not in (1, None):
            yield f"messages[{number}].weight: expected 1: all of the assistant's messages are learned"


def _conversation(path: Path, place: str, row: Mapping[str, Any]) -> Conversation:
    messages = tuple({"role": ROLES[item["role"]], "content": item["content"]} for item in row["messages"])
    queries: set[tuple[str, ...]] = {(name, str(row[name])) for name in QUERY if row.get(name) not in (None, "")}
    if row.get("id") not in (None, ""):
        queries.add(("id", str(path), str(row["id"])))  # two files may both number their lines
    return Conversation(place, messages, frozenset(queries))


# Holding out.


def hold_out(conversations: Sequence[Conversation], share: float, seed: int) -> set[int]:
    """Places in the list of the conversations to validate on: whole queries, at most the share, but one at least.

    Conversations with the same messages, the same messages before the model's first one, or one id are of one query.
    Queries are drawn by content and seed.

    Raises:
        ValueError: all are of one query.
    """
    from networkx.utils import UnionFind

    related: Any = UnionFind(range(len(conversations)))
    for place, one in enumerate(conversations):
        related.union(place, *(("same", one.same), ("opening", one.opening), *one.queries))
    queries = [[item for item in query if isinstance(item, int)] for query in related.to_sets()]
    if len(queries) < 2:
        raise ValueError(f"all {len(conversations)} conversations are of one query, or begin alike")

    def drawn(query: list[int]) -> str:
        name = min(conversations[place].same for place in query)
        return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()

    most = min(round(share * len(conversations)), len(conversations) - 1)
    order, held = sorted(queries, key=drawn), set[int]()
    shortest = min(order, key=len)
    for query in order:
        if len(held) + len(query) <= most:
            held.update(query)
    return held or set(shortest)


def on_both(train: Sequence[Conversation], val: Sequence[Conversation]) -> list[tuple[str, str]]:
    """Places of conversations to validate on, each with one to train on that is the same, or of the same query."""

    def keys(one: Conversation) -> set[Hashable]:
        return {one.same, *(query for query in one.queries if query[0] in QUERY)}

    trained = {key: one.place for one in train for key in keys(one)} if val else {}
    return [(one.place, trained[key]) for one in val for key in list(keys(one) & trained.keys())[:1]]


# Length, and what the loss sees.


class Template:
    """A model's chat template, as verl's data set uses it: message by message, so each must read alike anywhere.

    verl cuts off what the template puts before a first message. The loss sees what follows an assistant's header.
    """

    def __init__(self, tokenizer: Any, model: str, data: DictConfig) -> None:
        self.tokenizer, self.model, self.alone = tokenizer, model, bool(data.ignore_input_ids_mismatch)
        self.options: dict[str, Any] = OmegaConf.to_container(data.apply_chat_template_kwargs, resolve=True)  # type: ignore[assignment]
        self.thinking = data.enable_thinking_default
        empty: Message = {"role": "user", "content": ""}
        once, twice = self._render([empty]), self._render([empty, empty])
        self.before = once[: 2 * len(once) - len(twice)]
        self.header = self._render([empty], add_generation_prompt=True)[len(once) :]

    def pieces(self, conversation: Conversation) -> list[str]:
        """The text of each message; joined, what is trained on.

        Raises:
            PreflightError: the conversation as a whole reads otherwise, or the loss would not see the model's tokens.
        """
        messages, pieces = list(conversation.messages), list[str]()
        options = {} if self.thinking is None else {"enable_thinking": bool(self.thinking)}
        template = f"{conversation.place}: the chat template of {self.model}"
        for number, message in enumerate(messages):
            text = self._render([message], **options)
            pieces.append(text[len(self.before) :] if number and message["role"] != "system" else text)
            if message["role"] == "assistant" and not pieces[-1].startswith(self.header):
                said = f"lets the model begin with {self.header[-60:]!r}, but writes its messages otherwise"
                raise PreflightError(f"{template} {said}. Put another chat_template.jinja there.")
        if not self.alone and self._render(messages, **options) != "".join(pieces):
            how = "Set data.ignore_input_ids_mismatch=true to train on the latter, as in rollouts"
            raise PreflightError(f"{template} writes it otherwise as a whole than message by message. {how}.")
        return pieces

    def _render(self, messages: Sequence[Message], **options: Any) -> str:
        from verl.utils.tokenizer.chat_template import apply_chat_template

        given = {"tokenize": False, "add_generation_prompt": False, **self.options, **options}
        try:
            return str(apply_chat_template(self.tokenizer, list(messages), **given))
        except Exception as error:  # a template raises what it likes
            roles = ", ".join(message["role"] for message in messages[:8])
            said = f"refuses messages with the roles {roles}: {type(error).__name__}: {one_line(error)}"
            raise PreflightError(f"the chat template of {self.model} {said}. Put another one there.") from error


def fit(side: Sequence[Conversation], template: Template, data: DictConfig, key: str) -> tuple[list[Any], int]:
    """Conversations of at most `data.max_length` tokens without control tokens of their own, and how many were cut.

    `data.truncation` says what becomes of longer ones: they are refused (error), left out (drop), end with the last
    message of the model that fits or are left out where none does (messages), or are cut anywhere by verl (right).

    Raises:
        PreflightError: there are longer ones, none is left, or the template cannot be used.
    """
    plain, limit, how = PlainText.of(template.tokenizer), data.max_length, data.truncation
    fitting, too_long, cut = list[Conversation](), list[tuple[int, str]](), 0
    for one in side:
        one = replace(one, messages=tuple(plain.messages(one.messages)))
        pieces = template.pieces(one)
        ends = list(accumulate(map(len, template.tokenizer(pieces, add_special_tokens=False)["input_ids"])))
        if ends[-1] > limit:
            too_long.append((ends[-1], one.place))
            roles = [message["role"] for message in one.messages]
            fits = [at for at, (end, role) in enumerate(zip(ends, roles, strict=True), 1) if end <= limit]
            last = max((at for at in fits if roles[at - 1] == "assistant"), default=0)
            if how == "drop" or (how == "messages" and not last):
                continue
            if how == "messages":
                one, cut = replace(one, messages=one.messages[:last]), cut + 1
        fitting.append(one)
    if too_long:
        most, where = max(too_long)
        line = f"{len(too_long)} of {len(side)} conversations of data.{key} are longer than data.max_length={limit}"
        if how == "error" or not fitting:
            more = f"the longest has {most} tokens ({where}). Raise it, or set data.truncation=messages or drop"
            raise PreflightError(f"{line}, {more}.")
        left_out = len(side) - len(fitting)
        print(f"NOTE       {line}: {cut} cut, {left_out} left out (data.truncation={how})", flush=True)
    return fitting, cut


# For verl.


def arrange(sides: Sides, config: DictConfig, load_tokenizer: Callable[[str], Any]) -> Sides:
    """Both sides as they are trained on and validated. Prints what was done. PreflightError: they cannot be."""
    data, model, trainer = config.data, config.model, config.trainer
    template = Template(load_tokenizer(str(model.tokenizer_path or model.path)), str(model.path), data)
    train, cut = fit(sides.train, template, data, "train_files")
    val, cut_of_val = fit(sides.val, template, data, "val_files")
    left_out = len(sides.train) + len(sides.val) - len(train) - len(val)
    if data.val_share is not None:
        try:
            held = hold_out(train, data.val_share, trainer.seed)
        except ValueError as error:
            raise PreflightError(f"data.val_share={data.val_share}: {error}. Set data.val_files instead.") from error
        val = [train[place] for place in sorted(held)]
        train = [one for place, one in enumerate(train) if place not in held]
    learned = sum(message["role"] == "assistant" for one in train for message in one.messages)
    said = f"{len(train)} conversations to train on, with {learned} messages of the model; {len(val)} to validate on"
    print(f"DATA       {said}", flush=True)
    rows = min(len(train), data.train_max_samples) if data.train_max_samples > 0 else len(train)
    steps = rows // data.train_batch_size * trainer.total_epochs
    if (asked := trainer.total_training_steps or 1) > steps:  # verl would end without a word
        made = f"make {steps} steps of data.train_batch_size={data.train_batch_size}, fewer than {asked}"
        raise PreflightError(f"{rows} conversations {made}. Lower it, or raise trainer.total_epochs.")
    return Sides(train, val, {"train": len(train), "val": len(val), "cut": cut + cut_of_val, "left_out": left_out})


def write(sides: Sides, folder: Path) -> None:
    """The two files, and `counts.json`."""
    write_side(sides.train, folder / "train.parquet")
    write_side(sides.val, folder / "val.parquet")
    write_atomic(folder / "counts.json", json.dumps(sides.counts, indent=1) + "\n")


def write_side(side: Sequence[Conversation], path: Path) -> None:
    """Conversations as verl's data set reads them; no file of none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if side:
        messages = pa.array([list(one.messages) for one in side], type=SFT_SCHEMA.field("messages").type)
        write_table(pa.table({"messages": messages}), path)


def for_verl(config: DictConfig) -> DictConfig:
    """The configuration that verl's trainer gets: files that are there, and a validation only where there is one."""
    config, folder = deepcopy(config), Path(config.paths.stage) / "data"
    data = config.data
    validates = bool(data.val_files) or data.val_share is not None
    data.train_files = str(folder / "train.parquet")
    data.val_files = str(folder / "val.parquet") if validates else None
    if data.truncation in ("drop", "messages"):  # which verl does not know; nothing is too long any more
        data.truncation = "error"
    if not validates:
        config.trainer.test_freq = -1  # verl would look for what is not there
    return config
