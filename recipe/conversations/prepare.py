"""The conversations of a warm start, from the files that are named to the two that verl reads.

They are read and looked at before anything is written; then `<stage>/data` gets `train.parquet`, `val.parquet` where
something is held out, and `counts.json`, which says what became of all of them.
"""

import json
import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from omegaconf import DictConfig

from data_prep.rows import SFT_SCHEMA, write_table
from interaction.plain_text import PlainText
from recipe.conversations.files import KEPT, Conversation, read
from recipe.conversations.lengths import Fitted, Template, fit, told
from recipe.conversations.sides import hold_out, on_both
from recipe.errors import PreflightError
from recipe.files import Damaged, write_atomic
from recipe.preflight.model import load_tokenizer
from recipe.settings import as_list

SHOWN = 20
"""Mistakes that are printed."""
OURS = ("drop", "messages")
"""Values of `data.truncation` that verl does not have: nothing is too long once they have been applied."""


@dataclass(frozen=True)
class Sides:
    """Conversations to train on, and to validate on."""

    train: list[Conversation]
    val: list[Conversation]
    counts: dict[str, Any] | None = None
    """What became of all that were read; None before they are cut to length and parted."""


def read_sides(config: DictConfig, command: str) -> Sides:
    """All conversations of `data.train_files` and `data.val_files`.

    Args:
        command: what makes the former.

    Raises:
        PreflightError: a file or a conversation is not what it must be, settings do not go together, or a conversation
            stands on both sides.
    """
    data = config.data
    if data.val_share is not None and data.val_files:
        raise PreflightError(
            f"data.val_share={data.val_share} holds out conversations of data.train_files, and data.val_files="
            f"{data.val_files} names others. Set one of the two."
        )
    if data.val_share is not None and data.custom_cls.path is not None:
        raise PreflightError(
            f"data.val_share={data.val_share}: a data set class of your own (data.custom_cls.path) reads the files "
            "itself. Set data.val_files."
        )
    if data.use_dynamic_bsz and data.max_length > data.max_token_len_per_gpu:
        raise PreflightError(
            f"data.max_length={data.max_length} is more than data.max_token_len_per_gpu={data.max_token_len_per_gpu}, "
            "the tokens of a micro-batch, so that a conversation could not be computed. Set the latter to as many."
        )
    train = read_conversations(as_list(data.train_files), command)
    val = read_conversations(as_list(data.val_files), command, "val_files") if data.val_files else []
    if both := on_both(train, val):
        held, trained = both[0]
        raise PreflightError(
            f"{len(both)} of the {len(val)} conversations of data.val_files are also in data.train_files, or of the "
            f"same query or task ({held} and {trained}), so that val/loss would show what was learned by heart. Take "
            "them out of one, or set data.val_share, which keeps them apart."
        )
    return Sides(train, val)


def read_conversations(names: Sequence[str], command: str, key: str = "train_files") -> list[Conversation]:
    """All conversations of files of one side. Prints what is wrong with them.

    Raises:
        PreflightError: something is.
    """
    conversations, mistakes, not_read = [], [], 0
    for name in names:
        made = f"Make it again with `{command}`" if name.endswith(".parquet") else "Mend it"
        try:
            found = read(Path(os.path.expanduser(name)))
        except FileNotFoundError as error:
            raise PreflightError(f"data.{key}={name} does not exist. {made}, or set data.{key}.") from error
        except Damaged as error:
            raise PreflightError(f"data.{key}: {error}. {made}, or set data.{key}.") from error
        conversations += found.conversations
        mistakes += found.mistakes
        not_read += found.not_read
    if len(mistakes) > 1:
        print(*(f"MISTAKE    {mistake}" for mistake in mistakes[:SHOWN]), sep="\n", flush=True)
    if mistakes:
        rows = len({mistake.row for mistake in mistakes})
        more = "" if len(mistakes) == 1 else f" ({len(mistakes)} mistakes in {rows} conversations, listed above)"
        raise PreflightError(f"data.{key}: {mistakes[0]}{more}. {made}, or set data.{key}.")
    if not conversations:
        raise PreflightError(f"data.{key}={','.join(names)} has no rows. {made}, or set data.{key}.")
    if not_read:
        print(
            f"NOTE       {not_read} of the {len(conversations)} conversations of data.{key} have tools or functions, "
            "which are not read: what the model may call has to stand in its system message",
            flush=True,
        )
    return conversations


def arrange(sides: Sides, config: DictConfig) -> Sides:
    """Both sides as they are trained on and validated. Prints what was done.

    Raises:
        PreflightError: the template of the model cannot be used, conversations are too long, or too few.
    """
    data, model = config.data, config.model
    if data.custom_cls.path is not None:
        return sides
    template = Template(load_tokenizer(str(model.tokenizer_path or model.path)), str(model.path), data)
    train, val = _fitted(sides.train, "train_files", template, data), _fitted(sides.val, "val_files", template, data)
    to_train, to_validate, drawn = train.conversations, val.conversations, ""
    if data.val_share is not None:
        try:
            held = hold_out(to_train, data.val_share, config.trainer.seed)
        except ValueError as error:
            raise PreflightError(f"data.val_share={data.val_share}: {error}. Set data.val_files instead.") from error
        to_validate = [one for place, one in enumerate(to_train) if place in held]
        to_train = [one for place, one in enumerate(to_train) if place not in held]
        drawn = f", drawn by queries with trainer.seed={config.trainer.seed}"
    counts = {
        **{"train": len(to_train), "train_messages": _learned(to_train)},
        **{"val": len(to_validate), "val_messages": _learned(to_validate)},
        **{"cut": train.cut + val.cut, "left_out": train.left_out + val.left_out},
        "too_long": {**train.too_long, **val.too_long},
    }
    validated = f"; {len(to_validate)} to validate on, with {counts['val_messages']}{drawn}" if to_validate else ""
    print(
        f"DATA       {len(to_train)} conversations to train on, with {counts['train_messages']} messages of the "
        f"model{validated}",
        flush=True,
    )
    _check_steps(config, len(to_train))
    return Sides(to_train, to_validate, counts)


def _fitted(side: list[Conversation], key: str, template: Template, data: DictConfig) -> Fitted:
    if not side:
        return Fitted()
    plain = PlainText.of(template.tokenizer)  # as in a rollout, control tokens are those of the template
    kept = [json.loads(plain(json.dumps(one.kept, ensure_ascii=False))) for one in side]
    side = [replace(a, messages=(*plain.messages(a.messages),), kept=b) for a, b in zip(side, kept, strict=True)]
    try:
        fitted = fit(side, template, data.max_length, data.truncation)
    except PreflightError as error:
        raise PreflightError(f"data.{key}: {error}") from error
    if fitted.too_long:
        done = "cut at that token" if data.truncation == "right" else f"{fitted.cut} cut, {fitted.left_out} left out"
        print(
            f"NOTE       {told(fitted, len(side), data.max_length)}: {done} (data.truncation={data.truncation})",
            flush=True,
        )
    if not fitted.conversations:
        raise PreflightError(f"data.{key}: no conversation fits data.max_length={data.max_length}. Raise it.")
    return fitted


def _learned(side: Sequence[Conversation]) -> int:
    return sum(message["role"] == "assistant" for one in side for message in one.messages)


def _check_steps(config: DictConfig, rows: int) -> None:
    """There is a batch, and as many as are asked for."""
    data, trainer = config.data, config.trainer
    if data.train_max_samples > 0:
        rows = min(rows, data.train_max_samples)
    if rows < data.train_batch_size:
        raise PreflightError(
            f"data.train_batch_size={data.train_batch_size} is more than the {rows} conversations to train on: no step "
            "would be made. Set data.train_batch_size to that or less."
        )
    steps, asked = rows // data.train_batch_size * trainer.total_epochs, trainer.total_training_steps
    if asked is not None and asked > steps:
        raise PreflightError(
            f"trainer.total_training_steps={asked} is more than the {steps} steps of trainer.total_epochs="
            f"{trainer.total_epochs}. Set more epochs, or fewer steps."
        )


def folder_of(config: DictConfig) -> Path:
    """Where the two files for verl are."""
    return Path(config.paths.stage) / "data"


def write(sides: Sides, folder: Path) -> None:
    """The two files, and `counts.json`; nothing where a data set class of the user's reads what was named.

    Raises:
        OSError: they cannot be written.
    """
    if sides.counts is None:
        return
    for name, side in (("train", sides.train), ("val", sides.val)):
        write_side(side, folder / f"{name}.parquet")
    write_atomic(folder / "counts.json", json.dumps(sides.counts, indent=1) + "\n")


def write_side(side: Sequence[Conversation], path: Path) -> None:
    """Conversations as verl's data set reads them; no file of none.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if not side:
        return
    columns = {"messages": pa.array([list(one.messages) for one in side], type=SFT_SCHEMA.field("messages").type)}
    for name in KEPT:
        if any(name in one.kept for one in side):
            columns[name] = pa.array([one.kept.get(name) for one in side])
    write_table(pa.table(columns), path)


def for_verl(config: DictConfig) -> DictConfig:
    """The configuration that verl's trainer gets: files that are there, and a validation only where there is one."""
    config, folder = deepcopy(config), folder_of(config)
    data = config.data
    validates = bool(data.val_files) or data.val_share is not None
    if data.custom_cls.path is None:
        data.train_files = str(folder / "train.parquet")
        data.val_files = str(folder / "val.parquet") if validates else None
        data.truncation = "error" if data.truncation in OURS else data.truncation
    if not validates:
        config.trainer.test_freq = -1  # verl would look for what is not there
    return config
