"""Data, environments and reward of a stage: files are whole and as they were made, and every row can be played.

Each check yields its problems; what is worth a line in the log goes to `notes`. 400 rows take a quarter of a second.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import boundary, get_protocol
from interaction.boundary import ToolUnavailable
from interaction.environment import (
    DEFAULT,
    UnknownEnvironment,
    UserWords,
    load_tasks,
    part_of,
    read_options,
    register,
    task_of,
    waits,
)
from interaction.gold import check_attempts, check_task, opening, unwritable
from interaction.protocol import Message
from interaction.token_rewards import check_step_scores, steps_of
from interaction.users import EndpointUser, Replay, UserFault, make_user, require_answer
from recipe.files import Damaged, PreflightError, check_manifest
from recipe.machine import loopback
from recipe.reward import SCORE, tried
from recipe.settings import as_list
from recipe.stage import choosing

GUARD = "environment.guard"
POOL = "stage.resample.pool"
SPLITS = {"data.train_files": "train", "data.val_files": "val", GUARD: "val", POOL: "train"}
"""What `extra_info.split` says in the files of each setting; the turn policy and the place of the records follow it.

Training rows may be validated on; held-out rows are never trained on.
"""
LOOPS = "actor_rollout_ref.rollout.agent.agent_loop_config_path"


def environments(config: DictConfig) -> Iterator[str]:
    """A user's environments can be played, and settings of single environments are some that these have."""
    with open_dict(config):
        config.interaction.environments = {**_beside_data(config), **config.interaction.environments}
    for name, path in config.interaction.environments.items():
        path = os.path.abspath(os.path.expanduser(str(path)))  # workers have other working directories
        config.interaction.environments[name] = path
        try:
            register({str(name): path})
            if config.interaction.tried and any(map(waits, load_tasks(str(name)).values())):
                tasks = min(config.interaction.tried, len(load_tasks(str(name))))
                print(f"NOTE       {name}: {tasks} tasks are played, whose tools wait (interaction.tried=0: none)")
            _try_tasks(str(name), config.interaction.tried)
        except (ValueError, ToolUnavailable) as error:
            said = " ".join(str(error).split())
            yield f"interaction.environments.{name}={path}: {said}. See docs/your_tools.md, docs/your_data.md."
    for split in ("train", "val"):
        for name, options in config.interaction[split].environments.items():
            try:
                read_options(str(name), OmegaConf.to_container(options, resolve=True))  # type: ignore[arg-type]
            except ValueError as error:
                yield f"interaction.{split}.environments.{name}: {error}."


def _beside_data(config: DictConfig) -> dict[str, str]:
    """JSON files of tasks that `data_prep` has left in the folder of its rows, under their environments' names."""
    files = [name for key in SPLITS for name in as_list(OmegaConf.select(config, key))]
    found = dict[str, str]()
    for folder in dict.fromkeys(Path(name).expanduser().parent for name in files):
        with suppress(OSError, ValueError, LookupError, TypeError):
            named = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["made_from"]
            found |= {name: str(path) for name in named if (path := folder / f"{name}.json").is_file()}
    return found


def _try_tasks(environment: str, tried: int) -> None:
    """Play the first tasks of an environment.

    Raises:
        ValueError: something is not as `interaction.environment` says, or gold does not pass.
    """
    options = read_options(environment, {})
    for task in islice(load_tasks(environment).values(), tried):
        record = check_attempts(task, options)
        check_task(task, options)
        if record and (record.fault or record.outcome is None or not record.outcome.passed):
            how = record.fault or f"it ended with {record.stop_reason}"
            raise ValueError(f"task {task.id}: its gold does not pass: {how}")


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file.

    Raises:
        Damaged: it cannot be read.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read().to_pylist()
    except FileNotFoundError as error:
        raise Damaged(f"{path} does not exist") from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise Damaged(f"{path} cannot be read as parquet: {' '.join(str(error).split())[:200]}") from error


def rows(config: DictConfig, notes: list[str], read: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Files are whole, hold enough rows for a batch and can be played with the settings; `~` is written out.

    Args:
        read: is filled with the rows of each file, for the checks that follow.
    """
    protocol = get_protocol(config.interaction.protocol, docs=config.interaction.docs)
    options: Any = {split: OmegaConf.to_container(config.interaction[split].environments) for split in ("train", "val")}
    agent = config.actor_rollout_ref.rollout.agent
    path = agent.agent_loop_config_path = os.path.expanduser(agent.agent_loop_config_path)
    try:  # a worker would read it and import their modules after minutes
        entries: Any = OmegaConf.load(path)
        loops = {loop.name for loop in entries if find_spec(loop._target_.rpartition(".")[0])}
    except Exception as error:  # YAML's, OmegaConf's, or of a module's parent
        raise PreflightError(f"{LOOPS}={path} is no list as recipe/config/agent_loops.yaml: {error!r:.200}") from error

    @cache
    def prompt(environment: str, task_id: str, split: str) -> list[Message]:
        return opening(load_tasks(environment)[task_id], protocol, environments=options[split])

    def fault(row: Mapping[str, Any]) -> str | None:
        try:
            info, loop = row["extra_info"], row.get("agent_name", agent.default_agent_loop)
            task, split = task_of(info), info["split"]
            if split not in options or None in (row["data_source"], row["reward_model"]["ground_truth"]):
                return f"extra_info.split is {split!r}, or data_source or reward_model.ground_truth is empty"
            if loop not in loops:
                return f"its agent loop {loop!r} is none of {', '.join(loops)}, which {LOOPS}={path} has"
            if config.interaction.user is None and any(isinstance(item, UserWords) for item in task.gold()):
                return f"a user has to be played in {task.environment}; set interaction.user"
            if reason := unwritable(task, protocol):
                return f"interaction.protocol={protocol.name} cannot write the calls of {task.id}: {reason}"
            if row["prompt"] != prompt(task.environment, task.id, split):
                return "its prompt is not that of interaction.protocol, docs and environments"
        except UnknownEnvironment as error:
            return f"{error}; set +interaction.environments.{error.name}=FILE"
        except (AttributeError, KeyError, ToolUnavailable, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error!s:.200}"
        return None

    files, sources = dict[str, list[str]](), dict[str, set[str]]()
    for key, split in SPLITS.items():
        given = OmegaConf.select(config, key)
        names = files[key] = [os.path.expanduser(name) for name in as_list(given)]
        OmegaConf.update(config, key, names if OmegaConf.is_list(given) else ",".join(names) or None)
        validates = config.trainer.test_freq > 0 or config.trainer.val_before_train
        if not names and (key in (GUARD, POOL) or (key == "data.val_files" and not validates)):
            continue
        played, wrong = list[Mapping[str, Any]](), list[str]()
        for name in names:
            try:
                check_manifest(Path(name))
                found = read[name] = parquet_rows(Path(name))
                for place, row in enumerate(found):
                    if reason := fault(row):
                        raise Damaged(f"{name}, row {place}: {reason}")
            except Damaged as error:
                made = f"--protocol {protocol.name} --docs {config.interaction.docs} (docs/train.md#data-files)"
                wrong.append(f"{key}: {error}. Make it with {made}, or set {key}.")
            else:
                played += found
        yield from wrong
        if wrong:
            continue
        rows, of = len(played), f"{key}={','.join(names)}"
        sources[key] = {row["data_source"] for row in played}
        if not rows:
            yield f"{of} has no rows: no task has the part that it takes (Task.part). Add some, or set {key}."
        decides = choosing.deciding(config) if key == "data.val_files" else []
        if decides and not any(part_of(row["extra_info"]) == "dev" for row in played):
            yield f"{decides[0][0]}={decides[0][1]} needs dev tasks, and {of} has none. Set other files or metrics."
        if key == "data.train_files" and rows < config.data.train_batch_size:
            batch = config.data.train_batch_size
            yield f"data.train_batch_size={batch} is more than the {rows} rows of {of}. Set TRAIN_BATCH_SIZE lower."
        others = sum(row["extra_info"]["split"] != split for row in played)
        if others and key == "data.val_files":
            notes.append(f"{others} of {rows} rows of {of} are training rows: val/ shows what is learned by heart")
        elif others:
            yield f"{others} of {rows} rows of {of} are not for {split} (extra_info.split). Set others."
    guarded = sources.get(GUARD, set())
    if both := sorted(guarded & sources.get("data.val_files", set())):
        yield f"{GUARD} and data.val_files both have rows of {', '.join(both)}. Leave them out of one of the two."
    if guarded:  # validated on as well, and known by its data sources
        config.data.val_files = [*files["data.val_files"], *files[GUARD]]
        with open_dict(config):
            config.environment.guarded = sorted(guarded)


def user(config: DictConfig) -> Iterator[str]:
    """Whoever plays the user is there, and where a run may ask it; a file gets its whole path, for the workers."""
    settings: Any = OmegaConf.to_container(config.interaction.user, resolve=True) if config.interaction.user else None
    played = make_user(settings)
    if isinstance(played, Replay):
        config.interaction.user.file = os.path.abspath(os.path.expanduser(played.file))
    if not isinstance(played, EndpointUser):
        return
    if not played.local and not played.remote and loopback.environment(config.trainer.nnodes):
        yield f"interaction.user.url={played.url} is another machine. Set interaction.user.remote=true to ask it."
        return
    try:
        require_answer(settings)
    except UserFault as error:
        yield f"interaction.user: {error}"


def own_code(config: DictConfig) -> Iterator[str]:
    """Estimator and loss that a user's modules register can be trained with. Imports verl where there are such."""
    if named := os.environ.get("BFCL_EXTERNAL_MODULES"):
        try:
            boundary.call(lambda: import_module("recipe.credit.registry").try_out(config), boundary.LOAD_SECONDS)
        except Exception as error:
            yield f"VERL_USE_EXTERNAL_MODULES={named}: {boundary.raised(error)}. See docs/algorithms.md."


def reward(config: DictConfig, notes: list[str], read: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The reward gives usable scores for sample records of the environments in the training files that were `read`."""
    filtering, files = config.algorithm.filter_groups, as_list(OmegaConf.select(config, "data.train_files"))
    infos = (row["extra_info"] or {} for name in files for row in read.get(name, ()))
    environments = {info.get("environment") or DEFAULT for info in infos}
    try:
        for record, result in tried(config, sorted(environments) or [DEFAULT]):
            values = result if isinstance(result, Mapping) else {"acc": result}  # verl's name for a bare number
            if values.get("step_scores") is not None:
                check_step_scores(values["step_scores"], steps_of(record), values["score"])
            if filtering.enable and filtering.metric == "acc" and "acc" not in values:  # DAPO's; ours need not have it
                filtering.metric = SCORE
                notes.append(f"the reward returns no acc: algorithm.filter_groups.metric={SCORE}, its score")
            metric = filtering.metric if filtering.enable else SCORE
            if metric != SCORE and not isinstance(values.get(metric), int | float):
                yield f"algorithm.filter_groups.metric={metric} is no number of the reward's. Set {SCORE}."
            if OmegaConf.select(config, POOL) and not isinstance(values.get("progress"), int | float):
                yield f"{POOL}: the reward has to return progress, from 0 to 1. Add it, or set {POOL}=null."
    except (ToolUnavailable, ValueError) as error:
        yield f"{error} This was on a sample record; see rewards/README.md."
