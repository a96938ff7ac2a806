"""Checks of the data of a stage: every file is whole and as it was made, and every row can be played as it says.

All rows are looked at, prompts included, as far as the first that is wrong: 400 take a quarter of a second. What
`python -m data_prep` wrote has a hash in the manifest beside it and a checksum in every page, so one changed byte is
found; of files from elsewhere the structure and the values that are read. Other tools call a file manifest.json too, so
one without data_prep's marks says nothing here.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from omegaconf import DictConfig, OmegaConf

from interaction import get_protocol
from interaction.environment import DEFAULT, Task, UserWords, task_id_of, task_of
from interaction.gold import opening
from interaction.protocol import Message, Protocol
from recipe.errors import PreflightError
from recipe.files import Damaged, read_json, require_file
from recipe.preflight.agent_loops import read_loops
from recipe.preflight.writing import cannot_write
from recipe.settings.data_files import MIXTURE, as_list, data_command, environment_of
from recipe.typed import shown

SPLITS = {"train_files": "train", "val_files": "val"}
"""What `extra_info.split` says in the files of each setting; the turn policy and the place of the records follow it.

A validation on training rows shows whether they are learned by heart, so it may be asked for; the reverse would train
on what is held out.
"""

TEXTS = (
    "data_source",
    "prompt.[].role",
    "prompt.[].content",
    "extra_info.task_id|extra_info.scenario_id",
    "extra_info.split",
)
OTHERS = ("reward_model.ground_truth",)
"""Columns that verl and the agent loop read; of two names the second is that of earlier releases."""

LARGEST = 4 * 2**30
"""Bytes of a file: all 800 tasks with their prompts take a few megabytes."""

MOST_ROWS = 1_000_000
"""Rows of a file; a parquet file of a few kilobytes can state billions."""

COMMAND = "python -m data_prep "
"""What the command in data_prep's own manifest begins with."""

BEGINNING = f'{{\n  "command": "{COMMAND}'.encode()
"""Of data_prep's own manifest; tells a damaged one from a file of another tool."""

PATTERN = "*?["
"""Characters that `datasets`, with which verl reads the files, takes for a pattern."""


def check_data(config: DictConfig) -> None:
    """Files are whole, hold enough rows for a batch and can be played with the settings; `~` is written out.

    Prints what it means that rows for training are validated on.

    Raises:
        PreflightError: one is not; the message names file, row and value.
    """
    chosen = f"--protocol {config.interaction.protocol} --docs {config.interaction.docs}"
    agent = config.actor_rollout_ref.rollout.agent
    agent.agent_loop_config_path = os.path.expanduser(agent.agent_loop_config_path)
    rules = _Rules(
        get_protocol(config.interaction.protocol, docs=config.interaction.docs),
        f"interaction.protocol={config.interaction.protocol}, interaction.docs={config.interaction.docs}",
        Path(agent.agent_loop_config_path),
        read_loops(Path(agent.agent_loop_config_path)),
        str(agent.default_agent_loop),
        {split: _environments(config, split) for split in SPLITS.values()},
        user=config.interaction.get("user") is not None,
    )

    def command() -> str:
        return f"{data_command(config, rules.environment)} {chosen}"

    def remedy(key: str) -> str:
        return f"Make it again with `{command()}`, or set data.{key}."

    for key, split in SPLITS.items():
        names = [os.path.expanduser(name) for name in as_list(config.data[key])]
        of_split = Counter[str]()
        for name in names:
            rules.environment = environment_of(config, name)
            try:
                of_split += _check_file(Path(name), rules)
            except FileNotFoundError as error:
                raise PreflightError(f"data.{key}={name} does not exist. {remedy(key)}") from error
            except Damaged as error:
                raise PreflightError(f"data.{key}: {error}. {remedy(key)}") from error
        rows = of_split.total()
        if not rows:
            raise PreflightError(f"data.{key}={','.join(names)} has no rows. {remedy(key)}")
        if others := rows - of_split[split]:
            _tell_other_split(f"{others} of the {rows} rows of data.{key}={','.join(names)}", key, command())
        if key == "train_files" and rows < config.data.train_batch_size:
            raise PreflightError(
                f"data.train_batch_size={config.data.train_batch_size} is more than the {rows} rows of "
                f"{', '.join(names)}: no step would be made. Set TRAIN_BATCH_SIZE or data.train_batch_size to that or "
                "less."
            )
        config.data[key] = names if OmegaConf.is_list(config.data[key]) else names[0]


def _environments(config: DictConfig, split: str) -> dict[str, Any]:
    """`interaction.SPLIT.environments`."""
    policy = config.interaction.get(split) or OmegaConf.create()
    return OmegaConf.to_container(policy.get("environments") or OmegaConf.create(), resolve=True)  # type: ignore[return-value]


def _tell_other_split(rows: str, key: str, command: str) -> None:
    """Say what it means that a file has rows of the other split, or refuse them."""
    if key == "train_files":
        raise PreflightError(
            f"{rows} are held out (extra_info.split is 'val'); expected 'train'. Set data.train_files to training "
            f"rows, which `{command}` writes beside them."
        )
    print(
        f"NOTE       {rows} are training rows (extra_info.split is 'train'): val/ then shows how well they are "
        "learned, not how tasks go that were never seen. They are played by interaction.train, their episodes are in "
        "rollouts/train",
        flush=True,
    )


@dataclass
class _Rules:
    """What rows are compared with."""

    protocol: Protocol
    prompts_of: str
    """The settings that decide the prompts."""
    loops_file: Path
    loops: list[str]
    default_loop: str
    options: Mapping[str, Mapping[str, Any]]
    """Split -> settings of environments, by name."""
    user: bool
    """Whether somebody plays the user where an environment asks for one."""
    environment: str = DEFAULT
    """Whose data the file has that is looked at: by its name, then by the last row that was read."""
    prompts: dict[tuple[str, str, str], list[Message]] = field(default_factory=dict)
    """Filled in as they are asked for."""

    def prompt(self, task: Task, split: str) -> list[Message]:
        """The messages that an episode of the task begins with, by the settings of the row's split."""
        key = split, task.environment, task.id
        if key not in self.prompts:
            self.prompts[key] = opening(task, self.protocol, environments=self.options[split])
        return self.prompts[key]

    def asks(self, task: Task) -> bool:
        """Whether nobody says what the environment will ask a user for."""
        return not self.user and any(isinstance(item, UserWords) for item in task.gold())


def _check_file(path: Path, rules: _Rules) -> Counter[str]:
    """Looks at all rows of a file; returns how many there are of each split.

    Raises:
        FileNotFoundError, Damaged: it is not there, or has a fault.
    """
    check_whole(path)
    of_split = Counter[str]()
    for number, row in enumerate(parquet_rows(path, TEXTS, OTHERS)):
        if rules.environment != MIXTURE:
            rules.environment = _environment(row, rules.environment)
        if fault := _fault(row, rules):
            raise Damaged(f"{path}, row {number}: {fault}")
        of_split[row["extra_info"]["split"]] += 1
    return of_split


def _environment(row: dict[str, Any], by_name: str) -> str:
    info = row["extra_info"]
    named = by_name if info is None else info.get("environment") or DEFAULT
    return named if isinstance(named, str) else by_name


def check_whole(path: Path, endings: Sequence[str] = (".parquet",)) -> None:
    """verl can read a file of that name, and it is what the manifest beside it describes, if it names one so.

    Raises:
        FileNotFoundError, Damaged: it is not there, or has a fault.
    """
    if wild := next((letter for letter in str(path.absolute()) if letter in PATTERN), None):
        raise Damaged(f"{path.absolute()} has {wild} in its name, which is read as a pattern; give it another name")
    if path.suffix not in endings:
        raise Damaged(f"{path} has the ending {path.suffix!r}; expected {' or '.join(endings)}")
    require_file(path, LARGEST)
    manifest = path.with_name("manifest.json")
    entry = _described(manifest).get(path.name)
    if entry is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if entry["sha256"] != found:
        raise Damaged(
            f"{path} is not the file that {manifest} describes: it was changed or is damaged (SHA-256 {found[:12]}...; "
            f"there {shown(entry)}). If you changed it yourself, take it out of that manifest"
        )


def _described(manifest: Path) -> dict[str, dict[str, Any]]:
    """The files in a manifest of data_prep, each with its hash; none where there is no such manifest.

    Raises:
        Damaged: it begins as data_prep's does, and cannot be read.
    """
    try:
        content = read_json(manifest)
    except FileNotFoundError:
        return {}
    except Damaged:
        if _begins_as_ours(manifest):
            raise
        return {}
    if not isinstance(content, dict) or not str(content.get("command")).startswith(COMMAND):
        return {}
    files = content.get("files")
    if not isinstance(files, dict):
        return {}
    return files if all(isinstance(entry, dict) and "sha256" in entry for entry in files.values()) else {}


def _begins_as_ours(manifest: Path) -> bool:
    try:
        require_file(manifest)
        with manifest.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except (Damaged, OSError):
        return False


def parquet_rows(path: Path, texts: Sequence[str], others: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file that has these columns, the first ones texts. `prompt.[].role`: of a list's items.

    Raises:
        Damaged: it has not, or cannot be read; the message names file and column.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise Damaged(f"{path} states {file.metadata.num_rows} rows; expected at most {MOST_ROWS}")
            for name in (*texts, *others):
                kind = _column(path, file.schema_arrow, name)
                if name in texts and not _is_text(kind):
                    raise Damaged(
                        f"{path}: the column {name.partition('|')[0].replace('.[]', '')} is {kind}; expected text"
                    )
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError, OverflowError, MemoryError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise Damaged(f"{path} cannot be read as parquet: {words[:200]}") from error


def _column(path: Path, schema: pa.Schema, name: str) -> pa.DataType:
    name, _, earlier = name.partition("|")
    if earlier:
        with suppress(Damaged):
            return _column(path, schema, earlier)
    kind: Any = pa.struct(list(schema))
    for part in name.split("."):
        if part == "[]":
            if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                raise Damaged(f"{path}: the column {name.partition('.')[0]} is {kind}; expected a list of messages")
            kind = kind.value_type
            continue
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            has = ", ".join(item.name for item in kind) if pa.types.is_struct(kind) else kind
            raise Damaged(f"{path} has no column {name.replace('.[]', '')}; there is {shown(str(has))}")
        kind = kind.field(part).type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _fault(row: dict[str, Any], rules: _Rules) -> str | None:
    """What of a row cannot be played; None if all can."""
    info = row["extra_info"] or {}
    try:
        task = task_of(info)
    except (ValueError, TypeError) as error:
        return f"extra_info.task_id is {shown(task_id_of(info))}: {shown(str(error), quote=False)}"
    if info["split"] not in SPLITS.values():
        return f"extra_info.split is {shown(info['split'])}; expected one of {', '.join(SPLITS.values())}"
    if row["data_source"] is None or (row["reward_model"] or {}).get("ground_truth") is None:
        return "data_source or reward_model.ground_truth is empty"
    if (loop := row.get("agent_name", rules.default_loop)) not in rules.loops:
        whose = "" if "agent_name" in row else " of actor_rollout_ref.rollout.agent.default_agent_loop"
        return (
            f"names the agent loop {shown(loop)}{whose}, which {rules.loops_file} does not list "
            f"({', '.join(rules.loops)})"
        )
    if rules.asks(task):
        return f"is a task of {task.environment} whose user has to be played: set interaction.user"
    if lines := cannot_write(task, rules.protocol):
        return lines
    if row["prompt"] != rules.prompt(task, info["split"]):
        given = rules.options[info["split"]].get(task.environment)
        more = f", interaction.{info['split']}.environments.{task.environment}={dict(given)}" if given else ""
        return (
            f"was made for another prompt than {rules.prompts_of}{more} gives; manifest.json beside it says for which"
        )
    return None
