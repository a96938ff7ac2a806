"""What a stage keeps on the disk: `state.json`, and verl's checkpoints.

`state.json` says what the stage began with, where it stands and what it has finished. It is replaced as a whole, so a
kill leaves the old one or the new one. A checkpoint is whole if the file that verl writes last is there.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig
from pydantic import Field

from recipe.files import StateFile, Strict, set_aside, write_atomic

Step = Annotated[int, Field(ge=0)]

FILE = "state.json"
TRACKER = "latest_checkpointed_iteration.txt"
"""Where verl names the newest checkpoint."""
BATCHES_FILE = "batches.jsonl"
"""Which stored trajectories each step was trained on, a line each (`recipe.offline.trainer`)."""
KL_FILE, QUEUE_FILE = "kl_coefficient.json", "queue.json"
"""In a checkpoint: the adaptive KL coefficient; rollouts of each prompt in play (its `transfer_queue/` has them)."""
QUEUE_END = Path("transfer_queue", "metadata.json")
"""The file of the queue that is written last."""
LAST_FILES = ("data.pt", "data_0.pt")
"""The file of a checkpoint that verl writes last; the second one is the SFT trainer's."""


@dataclass(frozen=True)
class Start(Strict):
    """What the checkpoints of a stage began with."""

    model: str
    """A folder's absolute path, or a hub id."""
    weights: str | None = None
    """Short name of the model's weights by their noted checksums, so that a folder may be moved; else None."""
    made: str | None = None
    """`digest` of the warm start or stage that has made the model; of `before/` a hash of model and rows."""
    adapter: str | None = None
    """The same of the adapter that is trained further."""
    lora_rank: int | None = None
    lora_alpha: int | float | None = None
    processes: int | None = None
    """verl reads a checkpoint only with as many processes as wrote it."""
    checkpoints: str | None = None
    """Their folder, where that is outside the stage's."""
    files: tuple[str, ...] = ()
    """Training files."""
    rows: Step = 0
    digest: str | None = None
    """Hash of the tasks, trajectories or settings that are trained on, in order."""


@dataclass(frozen=True)
class Target(Strict):
    """At which step the stage ends, noted when its trainer has read the data."""

    total_steps: Step
    planned: Step
    """The last step without a gate."""
    reason: str | None = None
    """Why the gate ended it earlier."""
    gate: str = "None"
    asked: dict[str, Any] | None = None
    """The settings from which the number of steps follows."""


@dataclass(frozen=True)
class Best(Strict):
    """The best validated checkpoint so far; its model is in `best/`."""

    step: Step
    value: float
    metric: str


@dataclass(frozen=True)
class Verdict(Strict):
    """How a stage's gate stands at its end."""

    passed: bool
    stops: bool
    """Whether the curriculum ends here."""
    text: str


@dataclass(frozen=True)
class Done(Strict):
    """The stage has reached its end, and `hf/` holds the model that it hands on."""

    global_step: Step
    model_step: Step
    target: Step
    time: float
    reason: str | None = None
    best: Best | None = None
    gate: Verdict | None = None


@dataclass(frozen=True)
class State(StateFile):
    """`state.json`."""

    began: Start | None = None
    target: Target | None = None
    best: Best | None = None
    done: Done | None = None
    chose: tuple[dict[str, str], ...] | None = None
    """What validation has decided (`recipe.stage.choosing`)."""


def look(stage: Path) -> State:
    """The state of a stage; an empty one where there is none, or none that can be read."""
    return State.read_or_none(stage / FILE) or State()


def update(stage: Path, **changes: Any) -> None:
    """Change parts of the state."""
    stage.mkdir(parents=True, exist_ok=True)
    replace(look(stage), **changes).write(stage / FILE)


def latest(checkpoints: Path) -> int:
    """Step of the checkpoint that verl would resume; 0 if there is none."""
    try:
        return max(0, int((checkpoints / TRACKER).read_text()))
    except (OSError, ValueError):
        return 0


def step_folders(checkpoints: Path) -> dict[int, Path]:
    """Step -> folder of every checkpoint, whole or not; it may be a link. Backups with other names are none."""
    steps = ((path.name.removeprefix("global_step_"), path) for path in checkpoints.glob("global_step_*"))
    return {int(step): path for step, path in steps if step.isdecimal() and step == str(int(step)) and path.is_dir()}


def model_of(checkpoints: Path, step: int) -> Path:
    """The Hugging Face folder in a checkpoint of GRPO or PPO."""
    return checkpoints / f"global_step_{step}" / "actor" / "huggingface"


def whole(folder: Path) -> bool:
    """Whether verl has written the last file of a checkpoint, and its queue if it has one."""
    queue = not (folder / QUEUE_FILE).exists() or (folder / QUEUE_END).is_file()
    return queue and any((folder / name).is_file() for name in LAST_FILES)


def resumes(config: DictConfig) -> bool:
    """Whether this start goes on from a checkpoint."""
    folders = step_folders(Path(config.trainer.default_local_dir)).values()
    return config.trainer.resume_mode == "auto" and any(map(whole, folders))


def go_back(checkpoints: Path, alone: bool = True) -> list[str]:
    """Have verl's file name the newest whole checkpoint. Returns what was done.

    Args:
        alone: only this machine writes checkpoints there, so one that is not whole can be removed.
    """
    said, noted, folders = list[str](), latest(checkpoints), step_folders(checkpoints)
    for step in sorted(folders, reverse=True):
        if whole(folders[step]):
            if step != noted:
                write_atomic(checkpoints / TRACKER, str(step))
            return [*said, f"from the checkpoint of step {step}"]
        if alone and step > noted and not folders[step].is_symlink():  # verl was writing it
            shutil.rmtree(folders[step], ignore_errors=True)
            said.append(f"checkpoint of step {step} is not whole and is removed")
        else:
            said.append(f"checkpoint of step {step} is not whole and is set aside as {set_aside(folders[step]).name}")
    (checkpoints / TRACKER).unlink(missing_ok=True)
    return [*said, "no whole checkpoint is left: from the start model"] if folders else said


def prune(config: DictConfig) -> None:
    """After a save: keep the newest `trainer.max_actor_ckpt_to_keep` checkpoints, whichever start wrote them.

    verl counts only those of this start. The newest is the one that it names.
    """
    checkpoints = Path(config.trainer.default_local_dir)
    folders, newest = step_folders(checkpoints), latest(checkpoints)
    if keep := config.trainer.max_actor_ckpt_to_keep:
        for step in sorted(step for step in folders if step <= newest)[:-keep]:
            shutil.rmtree(folders[step], ignore_errors=True)
