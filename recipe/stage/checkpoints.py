"""What a stage leaves on the disk: checkpoints to resume from, the model it hands on, and the note that it is done.

verl deletes no checkpoint of earlier starts, because it counts in memory, and of a deleted one the data loader's state
stays: `prune` does. `resume` says which checkpoint is whole, `starts` which start they are of.
"""

import math
import shutil
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import loopback
from recipe.files import Damaged, PreflightError, StateFile, set_aside
from recipe.gates import Gate, values_until
from recipe.stage import choosing, trained
from recipe.stage.export import ExportError, export
from recipe.stage.integrity import broken_export, broken_weights
from recipe.stage.metrics_log import read_steps
from recipe.stage.notes import (
    BEST,
    BEST_FILE,
    DONE,
    DONE_FILE,
    STARTED,
    STARTED_FILE,
    TARGET,
    TARGET_FILE,
    Best,
    Done,
    Target,
    Verdict,
)
from recipe.stage.resume import go_back
from recipe.stage.starts import TRACKER, going_on, latest, step_folders

NOTES: dict[str, StateFile[Any]] = {TARGET_FILE: TARGET, BEST_FILE: BEST, DONE_FILE: DONE}
"""What a stage can make anew when it is damaged: steps from the data, the rest from the checkpoints."""


def prune(config: DictConfig) -> None:
    """After a save: keep the newest `trainer.max_actor_ckpt_to_keep` checkpoints, whichever start wrote them.

    The newest is the one that verl names, which it has just written. One with a higher number is not of this training.
    """
    checkpoints = Path(config.trainer.default_local_dir)
    folders, newest = step_folders(checkpoints), latest(checkpoints)
    if keep := config.trainer.max_actor_ckpt_to_keep:
        for step in sorted(step for step in folders if step <= newest)[:-keep]:
            shutil.rmtree(folders[step], ignore_errors=True)


def check(config: DictConfig) -> None:
    """How the stage saves, ends and hands on fits together.

    Raises:
        PreflightError: it does not.
    """
    trainer, stage = config.trainer, config.stage
    gate = gate_of(config)
    choosing.check(config)
    if trainer.save_freq <= 0:
        return
    if trainer.max_actor_ckpt_to_keep == 1 or trainer.get("remove_previous_ckpt_in_save"):
        raise PreflightError(
            "trainer.max_actor_ckpt_to_keep=1 (or trainer.remove_previous_ckpt_in_save): verl deletes that one before "
            "the next is whole, and a stage killed in between could not be resumed. Set 2 or more."
        )
    if OmegaConf.select(config, "critic.enable") and trainer.max_critic_ckpt_to_keep == 1:
        raise PreflightError(
            "trainer.max_critic_ckpt_to_keep=1: verl deletes the critic's before the next is whole, and a stage killed "
            "in between could not be resumed. Set 2 or more."
        )
    if config.actor_rollout_ref.actor.checkpoint.get("async_save"):
        raise PreflightError(
            "actor_rollout_ref.actor.checkpoint.async_save=true: verl then never names the newest checkpoint in "
            f"{TRACKER}, and no start could go on from it. Leave it out."
        )
    if "hf_model" not in config.actor_rollout_ref.actor.checkpoint.save_contents:
        raise PreflightError(
            "actor_rollout_ref.actor.checkpoint.save_contents lacks hf_model, which is what the next stage starts from."
        )
    validates = trainer.test_freq > 0
    if stage.handover == "best" and (not validates or trainer.save_freq % trainer.test_freq):
        raise PreflightError(
            f"stage.handover=best compares checkpoints that were validated, but trainer.save_freq={trainer.save_freq} "
            f"is no multiple of trainer.test_freq={trainer.test_freq}. Make it one."
        )
    if gate is not None and gate.metric.startswith("val") and not validates:
        raise PreflightError(f"stage.gate.metric={gate.metric} needs validations; set trainer.test_freq.")


def gate_of(config: DictConfig) -> Gate | None:
    """The gate that `stage.gate` states."""
    return Gate.parse(OmegaConf.to_container(config.stage.gate) if config.stage.gate else None)  # type: ignore[arg-type]


def repair(config: DictConfig) -> list[str]:
    """Before a start: go back to the last whole checkpoint, take out of the way what no start can use.

    Returns what was done.

    Raises:
        OSError: something cannot be renamed or written.
        ExportError: the best model cannot be exported anew.
    """
    if config.trainer.resume_mode != "auto":
        return []
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    said = [line for name, kind in NOTES.items() if (line := _mend(stage / name, kind))]
    if config.stage.handover == "best" and (line := _mend_best(config)):
        said.append(line)
    for path in [*(stage / "rollouts" / "train").glob("*.jsonl"), stage / trained.TRAINED_FILE]:
        if path.exists():
            _end_line(path)
    actor = config.actor_rollout_ref.actor
    if str(actor.strategy).startswith("fsdp") and checkpoints.is_dir():
        alone = loopback.cluster(config.trainer.get("nnodes", 1)) is None
        said += go_back(checkpoints, list(actor.checkpoint.save_contents), alone=alone)
    return said


def _mend(path: Path, kind: StateFile[Any]) -> str | None:
    """Set a damaged note aside; what it said is made anew."""
    try:
        kind.read(path)
    except Damaged as error:
        return f"{error}; it is set aside as {set_aside(path).name} and made anew"
    return None


def _end_line(path: Path) -> None:
    """A line that a kill cut off must not swallow the first one of the repeated step."""
    with path.open("rb+") as file:
        if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
            file.write(b"\n")


def asked_steps(config: DictConfig) -> dict[str, Any]:
    """The settings that decide how many steps a stage has."""
    trainer = config.trainer
    return {
        "total_epochs": trainer.total_epochs,
        "total_training_steps": trainer.total_training_steps,
        "train_batch_size": config.data.train_batch_size,
        "train_files": str(config.data.train_files),
        **({"over_budget": "leave_out"} if config.stage.get("over_budget") == "leave_out" else {}),
    }


def note_target(config: DictConfig, last: int, planned: int, reason: str | None = None) -> None:
    """Note the step at which this stage ends. Only the trainer knows it: verl drops prompts that are too long."""
    target = Target(
        total_steps=last,
        planned=planned,
        reason=reason,
        gate=str(config.stage.gate),
        asked=asked_steps(config),
        chose=tuple(choosing.decisions(config)),
    )
    TARGET.write(Path(config.paths.stage) / TARGET_FILE, target)


def read_target(stage: Path) -> Target | None:
    """What `note_target` noted last; None before a first launch has read its data."""
    return TARGET.read_or_none(stage / TARGET_FILE)


def at_target(config: DictConfig) -> bool:
    """Whether the last checkpoint is that of the last step, so that only the export is left to do."""
    target = read_target(Path(config.paths.stage))
    if config.trainer.resume_mode == "disable" or target is None or target.asked != asked_steps(config):
        return False
    if target.reason and target.gate != str(config.stage.gate):  # another gate may not have ended it
        return False
    return 0 < target.total_steps <= latest(Path(config.trainer.default_local_dir))


def keep_best(config: DictConfig, step: int, value: float) -> bool:
    """Export the model of the checkpoint just written if its validation is the best so far. True if it was.

    Raises:
        ExportError: it would not load as what it is.
    """
    stage = Path(config.paths.stage)
    source = Path(config.trainer.default_local_dir) / f"global_step_{step}" / "actor" / "huggingface"
    if not source.is_dir() or not math.isfinite(value):
        return False
    before = BEST.read_or_none(stage / BEST_FILE)  # a start has looked at its sums; here the GPUs wait
    if before and before.step < step and before.value >= value and not broken_weights(best_model(stage, before.step)):
        return False
    model = export(source, stage / "best" / f"global_step_{step}" / "hf", str(config.actor_rollout_ref.model.path))
    BEST.write(stage / BEST_FILE, Best(step, value, str(config.stage.handover_metric), str(model)))
    for old in (stage / "best").iterdir():
        if old != model.parent:
            shutil.rmtree(old, ignore_errors=True)
    return True


def read_best(stage: Path) -> Best | None:
    """The best validated checkpoint so far, if its model is whole."""
    best = BEST.read_or_none(stage / BEST_FILE)
    return None if best is None or broken_export(best_model(stage, best.step)) else best


def best_model(stage: Path, step: int) -> Path:
    """Where the model of that step is kept: in this stage, wherever the note says that it once was."""
    folder = stage / "best" / f"global_step_{step}"
    return folder / "hf" if (folder / "hf").is_dir() else folder  # without adapters there was no `hf`


def _mend_best(config: DictConfig) -> str | None:
    """Where the best model or its note is lost, make it anew from its checkpoint, or the note from what was logged."""
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    best = BEST.read_or_none(stage / BEST_FILE)
    if best is None:
        return _find_best(config)
    model = best_model(stage, best.step)
    fault = broken_export(model)
    if fault is None:
        return None
    if model.exists():
        fault += f"; it is set aside as {set_aside(model.parent).name}"
    source = checkpoints / f"global_step_{best.step}" / "actor" / "huggingface"
    start = STARTED.read_or_none(checkpoints / STARTED_FILE)
    if broken_export(source) is None and start is not None:
        export(source, stage / "best" / f"global_step_{best.step}" / "hf", start.model)
        return f"the best model, of step {best.step}, is damaged: {fault}, and was exported anew from its checkpoint"
    (stage / BEST_FILE).unlink()
    return f"the best model, of step {best.step}, is damaged: {fault}. The best is chosen from the steps to come"


def _find_best(config: DictConfig) -> str | None:
    """Where the note of the best model is lost and the model is not, make the note from what was logged."""
    stage, metric = Path(config.paths.stage), str(config.stage.handover_metric)
    logged = read_steps(stage)
    for step in sorted(step_folders(stage / "best"), reverse=True):
        value, model = logged.get(step, {}).get(metric), best_model(stage, step)
        if value is not None and math.isfinite(value) and broken_export(model) is None:
            BEST.write(stage / BEST_FILE, Best(step, value, metric, str(model)))
            return f"the best model is that of step {step}, by {metric} ({value:.3f})"
    return None


def finish(config: DictConfig) -> Done:
    """Export the model that the stage hands on to `<stage>/hf` and note that the stage is done.

    A stage is done only if its checkpoint is that of its last step, or of the step at which its gate ended it.

    Raises:
        SystemExit: the stage is not at its end, or the model cannot be handed on.
    """
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    step, target = latest(checkpoints), read_target(stage)
    if target is None or step < target.total_steps:
        sys.exit(
            f"{config.stage.name} ended at step {step} of {target.total_steps if target else 'an unknown number'}; "
            f"start it again{going_on(config)} to go on."
        )
    best = read_best(stage) if config.stage.handover == "best" else None
    source = best_model(stage, best.step) if best else checkpoints / f"global_step_{step}" / "actor" / "huggingface"
    (stage / DONE_FILE).unlink(missing_ok=True)
    if fault := broken_export(source):
        sys.exit(
            f"{config.stage.name} has made all its steps, but {fault}. Start it again{going_on(config)}: it goes on "
            "from the last whole checkpoint."
        )
    try:
        hf = export(source, stage / "hf", str(config.actor_rollout_ref.model.path))
    except ExportError as error:
        sys.exit(f"{config.stage.name} has made all its steps, but {error}")
    decided: Any = config  # the best, by the metric of the start that chose it, which may have been another one
    if best:
        decided = OmegaConf.merge(config, {"stage": {"handover_metric": best.metric}})
    done = Done(
        global_step=step,
        model=str(hf),
        target=target.planned,
        reason=target.reason,
        model_step=best.step if best else step,
        best=best,
        gate=judge(config, step),
        chose=tuple(choosing.decisions(decided)),
    )
    DONE.write(stage / DONE_FILE, done)
    return done


def judge(config: DictConfig, step: int) -> Verdict | None:
    """How the stage's gate stands at `step`. None without a gate."""
    gate = gate_of(config)
    if gate is None:
        return None
    target = read_target(Path(config.paths.stage))
    if target and target.reason:  # the gate itself ended the stage; one step more must not take that back
        return Verdict(passed=True, stops=False, text=target.reason)
    passed, text = gate.judge(values_until(read_steps(Path(config.paths.stage)), gate.metric, step))
    return Verdict(passed, gate.stops and not passed, text)


def read_done(stage: Path) -> Done | None:
    """What `finish` noted about a stage, or None if the stage is not done or its model is not whole."""
    done = DONE.read_or_none(stage / DONE_FILE)
    return None if done is None or broken_export(stage / "hf") else done
