"""Which start a stage's checkpoints are of, and how a start begins anew beside an older one.

verl resumes whatever it finds under `trainer.default_local_dir`. So a start notes there what it began with, and another
one is refused, unless `trainer.resume_mode=disable` asks for a new beginning: then all that the stage has left (its
checkpoints, model, metrics, episodes, notes) is renamed to `aside/`, before anything new is written. Nothing later can
take it for its own, nothing is deleted, and `python -m recipe.report <run>/aside` still shows it.
"""

import json
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.files import Damaged, PreflightError, read_json, read_text
from recipe.processes import LOCK
from recipe.stage.integrity import identity, measured_identity
from recipe.stage.notes import (
    LEFT_OUT,
    LEFT_OUT_FILE,
    MADE_WITH_FILE,
    QUEUE,
    QUEUE_FILE,
    STARTED,
    STARTED_FILE,
    TRAINED_ON,
    TRAINED_ON_FILE,
    LeftOut,
    Start,
    TrainedOn,
)

TRACKER = "latest_checkpointed_iteration.txt"
"""Where verl names the newest checkpoint."""

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
"""A model of the hub, unless there is a folder of that name."""

CHECKPOINT = re.compile("global_step_(0|[1-9][0-9]{0,17})")
"""Name of a checkpoint's folder."""

ASIDE = "aside"
"""Folder beside the stages for what was set aside; a run by its form, so that it can be reported as one."""

BEFORE = "before"
"""Folder beside the stages for the validation of the model that the warm start begins with (`stage.before`)."""

REMEDY = (
    "Set RUN=another-name for a new run, or trainer.resume_mode=disable to start over: what is there is then set aside."
)


def latest(checkpoints: Path) -> int:
    """Step of the checkpoint that verl would resume; 0 if there is none."""
    try:
        return max(0, int(read_text(checkpoints / TRACKER, 32)))
    except (FileNotFoundError, ValueError):
        return 0


def step_folders(checkpoints: Path) -> dict[int, Path]:
    """Step -> folder of every checkpoint, whole or not; it may be a link to a folder on another disk.

    A file, or a folder with anything before or after its number (a backup, an archive) is none.
    """
    return {step: path for step, path in named_like_checkpoints(checkpoints).items() if path.is_dir()}


def named_like_checkpoints(checkpoints: Path) -> dict[int, Path]:
    """Step -> whatever has the name of its checkpoint."""
    paths = checkpoints.iterdir() if checkpoints.is_dir() else ()
    return {int(match[1]): path for path in paths if (match := CHECKPOINT.fullmatch(path.name))}


def start_of(config: DictConfig) -> Start:
    """What a start of this configuration begins with."""
    model: Any = OmegaConf.select(config, "actor_rollout_ref.model") or config.model
    name = str(model.path)
    if HUB_ID.fullmatch(name) is None or Path(name).is_dir():
        name = str(Path(name).expanduser().absolute())
    # another rank does not load; another alpha would change the policy by that factor
    rank, alpha = (model.lora_rank, model.lora_alpha) if model.lora_rank else (None, None)
    adapter = model.get("lora_adapter_path")
    adapter = measured_identity(Path(str(adapter)).expanduser()) if adapter else None
    return Start(config.stage.name, name, rank, alpha, identity(Path(name)), adapter)


def _same(before: Start | None, start: Start) -> bool:
    """Whether two starts began with the same; where one does not know its weights, the place has to do."""
    if before is None or (None not in (before.weights, start.weights) and before.weights != start.weights):
        return False
    return _same_model(before, start) and replace(before, model=start.model, weights=start.weights) == start


def _same_model(before: Start, start: Start) -> bool:
    """Whether two starts name one model: by its weights, wherever a folder was moved or mounted, else by its place."""
    if before.weights is not None and before.weights == start.weights:
        return True
    if not os.path.isabs(start.model) and before.model.endswith(f"/{start.model}"):
        return not os.path.isdir(before.model)  # earlier releases noted a hub id as if it were a folder's path
    return _place(before.model) == _place(start.model)


def _place(model: str) -> str:
    try:
        return os.path.realpath(model) if os.path.isabs(model) else model  # else a hub id
    except ValueError:  # a damaged note can hold what is no path
        return model


def resumes(config: DictConfig) -> bool:
    """Whether this start goes on from a checkpoint."""
    if config.trainer.resume_mode != "auto":
        return False
    checkpoints = Path(config.trainer.default_local_dir)
    last = [path / name for path in step_folders(checkpoints).values() for name in ("data.pt", "data_0.pt")]
    return latest(checkpoints) > 0 or any(path.exists() for path in last)  # the latter is a warm start's


def going_on(*configs: DictConfig) -> str:
    """What to add to "the same command", or to "start it again", where that is to go on: nothing, most of the time."""
    starts_over = any(config.trainer.resume_mode == "disable" for config in configs)
    return " without trainer.resume_mode=disable" if starts_over else ""


def check_mode(config: DictConfig) -> None:
    """`trainer.resume_mode` is one that works here.

    Raises:
        PreflightError: it is not.
    """
    mode = config.trainer.resume_mode
    if mode == "resume_path":
        raise PreflightError(
            "trainer.resume_mode=resume_path is not supported: which steps of the stage's own checkpoints then count "
            "would be left open. To go back, rename the newer folders under "
            f"{config.trainer.default_local_dir} and start with auto; to begin with the weights of another "
            "checkpoint, set MODEL to its folder actor/huggingface."
        )
    if mode not in ("auto", "disable"):
        raise PreflightError(
            f"trainer.resume_mode={mode}; expected auto (go on from the last checkpoint) or disable (start over)."
        )


def check_same_start(config: DictConfig) -> None:
    """A checkpoint is resumed only by the stage, start model and LoRA settings that wrote it. Writes nothing.

    Raises:
        PreflightError: another start wrote what is there, it is not known which one did, or `trainer.resume_mode` would
            set aside what this start reads.
    """
    check_mode(config)
    if config.trainer.resume_mode == "disable":
        _check_outside(config)
    if not resumes(config):
        return
    checkpoints, start = Path(config.trainer.default_local_dir), start_of(config)
    try:
        before = STARTED.read(checkpoints / STARTED_FILE)
    except Damaged as error:
        raise PreflightError(
            f"{error}. So it is not known which start wrote the checkpoints beside it. {REMEDY} If they are of this "
            f"start, write into that file: {_text(start)}"
        ) from error
    if not _same(before, start):
        raise PreflightError(
            f"{checkpoints} holds checkpoints of {_text(before)}, this start is {_text(start)}. {REMEDY}"
        )
    _check_processes(config)
    _check_queue(config)


def _check_queue(config: DictConfig) -> None:
    """What was in play when a stage was saved is gone on with by one that plays on as well, with as many rollouts."""
    checkpoints = Path(config.trainer.default_local_dir)
    folder = checkpoints / f"global_step_{latest(checkpoints)}"
    if (before := QUEUE.read_or_none(folder / QUEUE_FILE)) is None:
        return
    rollouts = config.actor_rollout_ref.rollout.n
    if config.trainer.v1.trainer_mode == "sync":
        raise PreflightError(
            f"{folder} has prompts that were in play when it was saved, and with trainer=sync they would be left out. "
            f"Set trainer=async or trainer=separate, or begin a new run with MODEL={folder / 'actor' / 'huggingface'}."
        )
    if before.rollouts != rollouts:
        raise PreflightError(
            f"{folder} has groups of {before.rollouts} rollouts in play, and actor_rollout_ref.rollout.n={rollouts}: "
            f"half groups would count as lost. Set it to {before.rollouts} as before."
        )


def _check_processes(config: DictConfig) -> None:
    """verl reads a checkpoint only with as many processes as wrote it."""
    checkpoints, trainer = Path(config.trainer.default_local_dir), config.trainer
    model = checkpoints / f"global_step_{latest(checkpoints)}" / "actor"
    try:
        before = read_json(model / "fsdp_config.json")["world_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # a warm start, or nothing that a start would go on from
    if before != (now := trainer.n_gpus_per_node * trainer.nnodes):
        raise PreflightError(
            f"the checkpoints in {checkpoints} were written by {before} processes, and this start has {now} "
            f"(trainer.n_gpus_per_node={trainer.n_gpus_per_node}, trainer.nnodes={trainer.nnodes}); verl cannot resume "
            f"them so. Set these two as they were, or begin a new run with MODEL={model / 'huggingface'}."
        )


def other_model(config: DictConfig) -> str | None:
    """What to say where a stage that is done was trained from another model than the one named now; else None."""
    model = OmegaConf.select(config, "actor_rollout_ref.model")
    if model is None or (model.path is None and not model.get("lora_adapter_path")):
        return None
    before, start = STARTED.read_or_none(Path(config.trainer.default_local_dir) / STARTED_FILE), start_of(config)
    if before is None:
        return None
    if model.path is not None and not _same_model(before, start):
        return (
            f"{config.stage.name} is done and was trained from {before.model}, not from {start.model}. Leave MODEL out "
            f"to go on with what it has made. {REMEDY}"
        )
    if start.adapter not in (None, before.adapter):
        return (
            f"{config.stage.name} is done and was not trained from the adapter {model.lora_adapter_path}. Leave "
            f"actor_rollout_ref.model.lora_adapter_path out to go on with what it has made. {REMEDY}"
        )
    return None


def note(config: DictConfig) -> None:
    """Note what this start begins with, before it can leave a checkpoint.

    Raises:
        OSError: it cannot be written.
    """
    checkpoints, left_out = Path(config.trainer.default_local_dir), config.data.get("leave_out") or []
    checkpoints.mkdir(parents=True, exist_ok=True)
    STARTED.write(checkpoints / STARTED_FILE, start_of(config))
    if rows := config.data.get("stored") or config.data.get("tasks"):
        TRAINED_ON.write(checkpoints / TRAINED_ON_FILE, TrainedOn(rows.rows, rows.digest))
    if left_out or (checkpoints / LEFT_OUT_FILE).exists():
        LEFT_OUT.write(checkpoints / LEFT_OUT_FILE, LeftOut(tuple(left_out)))


def start_over(config: DictConfig) -> list[str]:
    """With `trainer.resume_mode=disable`: set aside what the stage has left. Returns what was done.

    Raises:
        OSError: it cannot be renamed.
    """
    if config.trainer.resume_mode != "disable":
        return []
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    link = checkpoints.readlink() if checkpoints.is_symlink() and checkpoints.parent == stage else None
    said, kept = [], None
    if not checkpoints.resolve().is_relative_to(stage.resolve()):  # a folder of the user's, which may hold other things
        if ours := [*step_folders(checkpoints).values(), *_present(checkpoints)]:
            kept = _free(checkpoints.resolve() / ASIDE / stage.name)
            kept.mkdir(parents=True)
            for path in ours:
                path.rename(kept / path.name)
            said.append(f"trainer.resume_mode=disable: the checkpoints in {checkpoints} are set aside in {kept}")
    if stage.is_dir() and any(path.name != LOCK and (path != checkpoints or link is None) for path in stage.iterdir()):
        target = _free(stage.parent / ASIDE / stage.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        stage.rename(target)  # at once, so that a kill leaves no half of it
        if link is not None:
            _link_again(checkpoints, link, target / checkpoints.name, kept)
        said.append(f"trainer.resume_mode=disable: all that was in {stage} is set aside in {target}")
    return said


def _link_again(checkpoints: Path, link: Path, old: Path, kept: Path | None) -> None:
    """A link to a larger disk stays where it was, and what was set aside gets one to what was set aside there."""
    checkpoints.parent.mkdir()
    checkpoints.symlink_to(link)
    old.unlink()  # or what comes behind it would look like what was set aside
    if kept is not None:
        old.symlink_to(kept)


def _present(checkpoints: Path) -> list[Path]:
    """The notes that belong to the checkpoints; the tracker first: without it none of them is resumed."""
    names = (TRACKER, STARTED_FILE, LEFT_OUT_FILE, TRAINED_ON_FILE, MADE_WITH_FILE)
    return [path for name in names if (path := checkpoints / name).exists()]


def _free(path: Path) -> Path:
    number, free = 1, path
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def _check_outside(config: DictConfig) -> None:
    """What this start reads is in no folder that it sets aside: that of the stage, and the checkpoints elsewhere."""
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    folders = [path.resolve() for path in (stage, *step_folders(checkpoints).values()) if path.is_dir()]
    named: list[tuple[str, Any]] = [("MODEL", start_of(config).model)]
    settings = (
        *("actor_rollout_ref.model.lora_adapter_path", "critic.model.path", "data.train_files", "data.val_files"),
        "reward.custom_reward_function.path",
    )
    for setting in settings:
        value: Any = OmegaConf.select(config, setting)
        named += [(setting, item) for item in (value if OmegaConf.is_list(value) else [value]) if item]
    for setting, value in named:
        place = Path(str(value)).expanduser().resolve()
        if inside := [folder for folder in folders if place.is_relative_to(folder)]:
            raise PreflightError(
                f"{setting}={value} is in {inside[0]}, which trainer.resume_mode=disable sets aside. Move it to "
                "another place, or set RUN=another-name (and trainer.default_local_dir, where that is set)."
            )


def _text(start: Start | None) -> str:
    """A start as its file has it, without what is not set."""
    return json.dumps({key: value for key, value in asdict(start).items() if value is not None}) if start else "unknown"
