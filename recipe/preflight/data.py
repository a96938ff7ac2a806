"""Checks of the data of a stage: every file is whole and as it was made, and every row can be played as it says.

All rows are looked at, prompts included, as far as the first that is wrong: 400 take a quarter of a second.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import get_protocol
from interaction.environment import DEFAULT, Task, UnknownEnvironment, UserWords, task_id_of, task_of
from interaction.gold import opening
from interaction.protocol import Message, Protocol
from recipe.errors import PreflightError
from recipe.files import Damaged
from recipe.preflight.agent_loops import read_loops
from recipe.preflight.data_file import check_whole, parquet_rows
from recipe.preflight.made_from import changed
from recipe.preflight.writing import cannot_write
from recipe.settings.data_files import LAPTOP, MIXTURE, as_list, data_command, environment_of, naming, without_tasks
from recipe.typed import shown

SPLITS = {"data.train_files": "train", "data.val_files": "val", "environment.guard": "val"}
"""What `extra_info.split` says in the files of each setting; the turn policy and the place of the records follow it.

A validation on training rows shows whether they are learned by heart, so it may be asked for; the reverse would train
on what is held out.
"""

GUARD = "environment.guard"
MAKE_GUARD = ".venv/bin/python -m data_prep --mixture bfcl_single=1 --rows 1 --val-rows 128 --out data/guard"

TEXTS = (
    "data_source",
    "prompt.[].role",
    "prompt.[].content",
    "extra_info.task_id",
    "extra_info.split",
)
OTHERS = ("reward_model.ground_truth",)
"""Columns that verl and the agent loop read; of two names the second is that of earlier releases."""


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
        if key == GUARD:
            return f"Make one with `{MAKE_GUARD} {chosen}`, or set {key}."
        return f"Make it again with `{command()}`, or set {key}."

    files, sources, told = {}, dict[str, set[str]](), set[str]()
    own: Any = OmegaConf.to_container(config.interaction.get("environments") or OmegaConf.create(), resolve=True)
    for key, split in SPLITS.items():
        given = OmegaConf.select(config, key)
        names = files[key] = [os.path.expanduser(name) for name in as_list(given)]
        validates = config.trainer.get("test_freq", 1) > 0 or config.trainer.val_before_train
        if (key == GUARD and given is None) or (key == "data.val_files" and not names and not validates):
            continue
        of_split = Counter[str]()
        for name in names:
            rules.environment = environment_of(config, name)
            try:
                found = _check_file(Path(name), rules)
            except FileNotFoundError as error:
                raise PreflightError(f"{key}={name} does not exist. {remedy(key)}") from error
            except UnknownEnvironment as error:
                said = f"{key}={name}: {shown(str(error), quote=False)}"
                raise PreflightError(f"{said}. {naming(config, error.name) or remedy(key)}") from error
            except Damaged as error:
                raise PreflightError(f"{key}: {error}. {remedy(key)}") from error
            for line in changed(Path(name), rules.environment, own):
                if line not in told:
                    told.add(line)
                    print(f"NOTE       {line}. {remedy(key)}", flush=True)
            of_split += found.of_split
            sources.setdefault(key, set()).update(found.sources)
        rows = of_split.total()
        if not rows:
            none = without_tasks(rules.environment, ("train",) if split == "train" else ("choose", "report"))
            how = remedy(key) if none is None or key == GUARD else f"{none} with `{command()}`, or set {key}."
            raise PreflightError(f"{key}={','.join(names)} has no rows. {how}")
        if others := rows - of_split[split]:
            _tell_other_split(f"{others} of the {rows} rows of {key}={','.join(names)}", key, command())
        if key == "data.train_files" and rows < config.data.train_batch_size:
            raise PreflightError(
                f"data.train_batch_size={config.data.train_batch_size} is more than the {rows} rows of "
                f"{', '.join(names)}: no step would be made. Set TRAIN_BATCH_SIZE or data.train_batch_size to that or "
                "less, and MINI_BATCH_SIZE with it."
            )
        OmegaConf.update(config, key, names if OmegaConf.is_list(given) else names[0])
    if guard := sources.get(GUARD):
        _join_guard(config, files, guard, sources.get("data.val_files", set()))


def _join_guard(config: DictConfig, files: Mapping[str, list[str]], guard: set[str], val: set[str]) -> None:
    """The guard's files are validated on too; its rows are known by their data sources.

    Raises:
        PreflightError: by these it cannot be told from the rest of the validation.
    """
    if both := sorted(guard & val):
        raise PreflightError(
            f"environment.guard={','.join(files['environment.guard'])} and data.val_files="
            f"{','.join(files['data.val_files'])} both have rows of {shown(', '.join(both), quote=False)}, and a "
            "guard is reported apart by its data sources. Leave them out of one of the two."
        )
    config.data.val_files = [*files["data.val_files"], *files["environment.guard"]]
    with open_dict(config):
        config.environment.guarded = sorted(guard)


def _environments(config: DictConfig, split: str) -> dict[str, Any]:
    """`interaction.SPLIT.environments`."""
    policy = config.interaction.get(split) or OmegaConf.create()
    return OmegaConf.to_container(policy.get("environments") or OmegaConf.create(), resolve=True)  # type: ignore[return-value]


def _tell_other_split(rows: str, key: str, command: str) -> None:
    """Say what it means that a file has rows of the other split, or refuse them."""
    if key == GUARD:
        raise PreflightError(
            f"{rows} are training rows (extra_info.split is 'train'); expected 'val': a guard is of held-out tasks. "
            f"Set {key} to the file with val in its name, which is beside it."
        )
    if key == "data.train_files":
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


@dataclass
class _Found:
    """What a file's rows say."""

    of_split: Counter[str] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)


def _check_file(path: Path, rules: _Rules) -> _Found:
    """Looks at all rows of a file; returns how many there are of each split, and their data sources.

    Raises:
        FileNotFoundError, Damaged: it is not there, or has a fault.
        UnknownEnvironment: its rows are of one that no setting names.
    """
    check_whole(path)
    found = _Found()
    for number, row in enumerate(parquet_rows(path, TEXTS, OTHERS)):
        if rules.environment not in (MIXTURE, LAPTOP):
            rules.environment = _environment(row, rules.environment)
        if fault := _fault(row, rules):
            raise Damaged(f"{path}, row {number}: {fault}")
        found.of_split[row["extra_info"]["split"]] += 1
        found.sources.add(row["data_source"])
    return found


def _environment(row: dict[str, Any], by_name: str) -> str:
    info = row["extra_info"]
    named = by_name if info is None else info.get("environment") or DEFAULT
    return named if isinstance(named, str) else by_name


def _fault(row: dict[str, Any], rules: _Rules) -> str | None:
    """What of a row cannot be played; None if all can."""
    info = row["extra_info"] or {}
    try:
        task = task_of(info)
    except UnknownEnvironment:
        raise
    except (ValueError, TypeError) as error:
        return f"extra_info.task_id is {shown(task_id_of(info))}: {shown(str(error), quote=False)}"
    if info["split"] not in SPLITS.values():
        return f"extra_info.split is {shown(info['split'])}; expected one of train, val"
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
