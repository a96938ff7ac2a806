"""Whether the rows that checkpoints were trained on are those of the start that would go on from them.

verl's data loader saves its position, which means the same rows only where the files have the same.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from recipe.files import Damaged, PreflightError
from recipe.settings import as_list
from recipe.stage.notes import LEFT_OUT, LEFT_OUT_FILE, TRAINED_ON, TRAINED_ON_FILE, TrainedOn
from recipe.stage.starts import REMEDY, latest, resumes


def tasks_of(names: Sequence[str]) -> TrainedOn:
    """What is noted of the tasks of training files, given in the order of the rows."""
    return TrainedOn(len(names), sha256("\n".join(names).encode()).hexdigest())


def check_same_tasks(config: DictConfig, now: TrainedOn) -> None:
    """A stage goes on with the tasks that it has begun with, wherever their files are. Writes nothing.

    Raises:
        PreflightError: the checkpoints were trained on others, or it is not known on which. Those of earlier releases
            do not say.
    """
    if not resumes(config):
        return
    checkpoints = Path(config.trainer.default_local_dir)
    before = _trained_on(checkpoints)
    if before not in (None, now):
        model = checkpoints / f"global_step_{latest(checkpoints)}" / "actor" / "huggingface"
        raise PreflightError(
            f"the checkpoints in {checkpoints} were trained on {before.rows} tasks, this start has {now.rows}, not the "
            f"same ones (data.train_files={','.join(as_list(config.data.train_files))}). {REMEDY} To train that model "
            f"further on these, set MODEL={model} as well."
        )


def other_data(config: DictConfig, stage: Path) -> str | None:
    """What to say where a stage that is done was trained on other files than those named now; else None."""
    try:
        given = (OmegaConf.load(stage / "config" / "resolved.yaml"), config)
        before, now = ([name for name in as_list(one.data.train_files) if isinstance(name, str)] for one in given)
    except (OSError, OmegaConfBaseException, YAMLError, AttributeError, TypeError, ValueError):
        return None
    if not before or [*map(_place, before)] == [*map(_place, now)]:
        return None
    return f"trained on {','.join(before)}, not on {','.join(now)}: that takes a new run, RUN=another-name"


def _place(name: str) -> Path:
    return Path(name).expanduser().resolve()


def check_same_rows(config: DictConfig, left_out: list[str]) -> None:
    """A data loader's saved position means the same rows only if the rows are the same. Writes nothing.

    Raises:
        PreflightError: they are others, or it is not known whether they are.
    """
    if not resumes(config):
        return
    path = Path(config.trainer.default_local_dir) / LEFT_OUT_FILE
    try:
        note = LEFT_OUT.read(path)
    except Damaged as error:
        raise PreflightError(
            f"{error}. So it is not known which tasks the checkpoints beside it never saw. {REMEDY} If they are those "
            f"that this start leaves out, write into that file: {json.dumps(left_out)}"
        ) from error
    before = list(note.tasks) if note else []
    if sorted(_named(before, left_out)) != left_out:
        raise PreflightError(
            f"the checkpoints in {path.parent} were trained with {len(before)} tasks left out, this start would leave "
            f"out {len(left_out)} (stage.over_budget={config.stage.over_budget}). Set stage.over_budget, lengths and "
            f"turn policy as they were. {REMEDY}"
        )


def _named(before: list[str], left_out: list[str]) -> list[str]:
    """The tasks of a note. Earlier releases wrote ids alone: BFCL's, or that of the one task here that has it."""
    of_id: dict[str, list[str]] = {}
    for name in left_out:
        of_id.setdefault(name.partition("/")[2], []).append(name)
    return [of_id[name][0] if name not in left_out and len(of_id.get(name, [])) == 1 else name for name in before]


def check_same_trajectories(config: DictConfig, now: TrainedOn) -> None:
    """The same for stored trajectories: a position among others would mean other ones. Writes nothing.

    Raises:
        PreflightError: they are others, or it is not known whether they are.
    """
    if not resumes(config):
        return
    checkpoints = Path(config.trainer.default_local_dir)
    before = _trained_on(checkpoints)
    if before != now:
        raise PreflightError(
            f"the checkpoints in {checkpoints} learn from {before.rows if before else 'no'} stored rows, this start "
            f"has {now.rows}, not the same ones. Set offline.files, the token limits, algorithm and "
            f"actor_rollout_ref.rollout.n as they were. {REMEDY}"
        )


def _trained_on(checkpoints: Path) -> TrainedOn | None:
    """The note beside checkpoints; None where there is none.

    Raises:
        PreflightError: it is damaged.
    """
    try:
        return TRAINED_ON.read(checkpoints / TRAINED_ON_FILE)
    except Damaged as error:
        raise PreflightError(
            f"{error}. So it is not known which tasks or trajectories the checkpoints beside it learn from. {REMEDY}"
        ) from error
