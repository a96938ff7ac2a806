"""When a stage ends, and with which model: gate, best checkpoint, export, and the note that it is done.

A gate that is reached does not end the stage in that step but makes the next one its last. verl decides on saving
before a step's metrics exist, and saves while the engine has given its memory back; its own last step saves, validates
and ends everything in the right order, for the price of one step.
"""

import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.files import read
from recipe.stage import choosing, gates, state
from recipe.stage.export import ExportError, export
from recipe.stage.gates import Gate
from recipe.stage.metrics_log import read_steps
from recipe.stage.starts import going_on
from recipe.stage.state import Best, Done, Target, Verdict, latest, model_of
from recipe.stage.weights import broken_export


def problems(config: DictConfig) -> Iterator[str]:
    """Settings with which the stage would save, end or hand on otherwise than they say."""
    trainer, stage, gate = config.trainer, config.stage, gate_of(config)
    checkpoint, validates = config.actor_rollout_ref.actor.checkpoint, trainer.test_freq > 0
    critic = OmegaConf.select(config, "critic.enable") and trainer.max_critic_ckpt_to_keep == 1
    yield from choosing.problems(config)
    if trainer.save_freq <= 0:
        return
    if trainer.max_actor_ckpt_to_keep == 1 or critic or trainer.get("remove_previous_ckpt_in_save"):
        yield "trainer.max_actor_ckpt_to_keep=1, or the like: verl deletes it before the next is whole. Set 2 or more."
    if checkpoint.get("async_save"):
        yield "actor_rollout_ref.actor.checkpoint.async_save=true: no start could go on from such a save. Leave it out."
    if lacking := {"model", "optimizer", "extra", "hf_model"} - {*checkpoint.save_contents}:
        names = ", ".join(sorted(lacking))
        yield f"actor_rollout_ref.actor.checkpoint.save_contents lacks {names}, for a resume or the next stage. Add it."
    if stage.handover == "best" and (not validates or trainer.save_freq % trainer.test_freq):
        yield f"stage.handover=best: trainer.save_freq must be a multiple of trainer.test_freq={trainer.test_freq}."
    if gate is not None and gate.metric.startswith("val") and not validates:
        yield f"stage.gate.metric={gate.metric} needs validations; set trainer.test_freq."


def gate_of(config: DictConfig) -> Gate | None:
    """Raises PreflightError for what it cannot be."""
    return read(Gate, OmegaConf.to_container(config.stage.gate), "stage.gate") if config.stage.gate else None


def asked_steps(config: DictConfig) -> dict[str, Any]:
    """The settings that decide how many steps a stage has."""
    trainer = config.trainer
    return {
        "total_epochs": trainer.total_epochs,
        "total_training_steps": trainer.total_training_steps,
        "train_batch_size": config.data.train_batch_size,
        "train_files": str(config.data.train_files),
        "over_budget": config.stage.get("over_budget"),
    }


def note_target(config: DictConfig, last: int, planned: int, reason: str | None = None) -> None:
    """Note the step at which this stage ends. Only the trainer knows it: verl drops prompts that are too long."""
    target = Target(last, planned, reason, str(config.stage.gate), asked_steps(config))
    state.update(Path(config.paths.stage), target=target, chose=tuple(choosing.decisions(config)))


def at_target(config: DictConfig) -> bool:
    """Whether the last checkpoint is that of the last step, so that only the export is left to do."""
    target = state.look(Path(config.paths.stage)).target
    if config.trainer.resume_mode == "disable" or target is None or target.asked != asked_steps(config):
        return False
    if target.reason and target.gate != str(config.stage.gate):  # another gate may not have ended it
        return False
    return 0 < target.total_steps <= latest(Path(config.trainer.default_local_dir))


def owes_validation(config: DictConfig, last: int = 0) -> bool:
    """Whether a start was killed between the newest checkpoint and its validation; step `last` is the stage's last."""
    step, every = latest(Path(config.trainer.default_local_dir)), config.trainer.test_freq
    due = 0 < step and 0 < every and (step >= last or step % every == 0)
    return due and not any(name.startswith("val") for name in read_steps(Path(config.paths.stage)).get(step, ()))


def best_model(stage: Path, step: int) -> Path:
    """Where the model of the best step is kept."""
    return stage / "best" / f"global_step_{step}" / "hf"


class StageEnd:
    """One launch of a stage.

    Args:
        planned: the last step if nothing ends the stage earlier.
        done: the step of the checkpoint that was resumed; 0 for a fresh start.
    """

    def __init__(self, config: DictConfig, planned: int, done: int) -> None:
        self.config, self.planned, self.last, self.gate = config, planned, planned, gate_of(config)
        self.hands_best = config.stage.handover == "best"
        stage, metric = Path(config.paths.stage), config.stage.handover_metric
        self._values = gates.values_until(read_steps(stage), self.gate.metric, done) if self.gate else []
        best = state.look(stage).best
        if best and (best.step > done or (self.hands_best and best.metric != metric)):
            # of a training that this one does not continue, or by another metric: their values do not compare
            state.update(stage, best=None)
            print(f"RESUME the best, step {best.step} by {best.metric}, is chosen anew from now on", flush=True)
        if at_target(config) and done == latest(Path(config.trainer.default_local_dir)):  # it may lack its validation
            self.last = done
        else:
            note_target(config, planned, planned)
            self._leave_after(done)
        self.owed = done if owes_validation(config, self.last) else None

    def __call__(self, step: int, metrics: Mapping[str, float]) -> int:
        """Take note of a step's metrics; returns the step that is now the last one."""
        metric = self.config.stage.handover_metric
        if self.hands_best:
            gates.check_logged("stage.handover_metric", metric, metrics)
            if metric in metrics and self.keep_best(step, float(metrics[metric])):
                print(f"{metric} {metrics[metric]:.3f} is the best so far: kept the model of step {step}", flush=True)
        if self.gate is not None:
            gates.check_logged("stage.gate.metric", self.gate.metric, metrics)
            if self.gate.metric in metrics:
                self._values.append(float(metrics[self.gate.metric]))
                self._leave_after(step)
        return self.last

    def keep_best(self, step: int, value: float) -> bool:
        """Export the model of the checkpoint just written if its validation is the best so far. True if it was."""
        stage, config = Path(self.config.paths.stage), self.config
        source, before = model_of(Path(config.trainer.default_local_dir), step), state.look(stage).best
        if not source.is_dir() or not math.isfinite(value):
            return False
        if before and before.step < step and before.value >= value:
            return False
        model = export(source, best_model(stage, step), str(config.actor_rollout_ref.model.path))
        state.update(stage, best=Best(step, value, str(config.stage.handover_metric)))
        for old in (stage / "best").iterdir():
            if old != model.parent:
                shutil.rmtree(old, ignore_errors=True)
        return True

    def _leave_after(self, step: int) -> None:
        """Make the next step the last one if the gate is reached after `step`."""
        reason = self.gate.reason_to_leave(self._values) if self.gate else None
        if reason and 0 < step and step + 1 < self.last:
            self.last = step + 1
            text = f"left at step {self.last} of {self.planned}: {reason}"
            note_target(self.config, self.last, self.planned, text)
            print(f"GATE {text}", flush=True)


def finish(config: DictConfig) -> Done:
    """Export the model that the stage hands on to `<stage>/hf` and note that the stage is done.

    A stage is done only if its checkpoint is that of its last step, or of the step at which its gate ended it.

    Raises:
        SystemExit: the stage is not at its end, or the model cannot be handed on.
    """
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    step, target = latest(checkpoints), state.look(stage).target
    if target is None or step < target.total_steps:
        of = target.total_steps if target else "an unknown number"
        sys.exit(f"{config.stage.name} ended at step {step} of {of}; start it again{going_on(config)} to go on.")
    best = state.look(stage).best if config.stage.handover == "best" else None
    source = best_model(stage, best.step) if best else model_of(checkpoints, step)
    if best and broken_export(source):
        source = model_of(checkpoints, best.step)  # it may still be there
    try:
        state.update(stage, done=None)
        if fault := broken_export(source):
            raise ExportError(f"{fault}. Rename that checkpoint to go on from the one before")
        export(source, stage / "hf", str(config.actor_rollout_ref.model.path))
    except (ExportError, OSError) as error:
        sys.exit(f"\n{config.stage.name} has made all its steps, but cannot hand on its model: {error}")
    decided: Any = config
    if best:  # by the metric of the start that chose it, which may have been another one
        decided = OmegaConf.merge(config, {"stage": {"handover_metric": best.metric}})
    model_step = best.step if best else step
    done = Done(step, model_step, target.planned, time.time(), target.reason, best, judge(config, step))
    state.update(stage, done=done, chose=tuple(choosing.decisions(decided)))
    return done


def judge(config: DictConfig, step: int) -> Verdict | None:
    """How the stage's gate stands at `step`. None without a gate."""
    stage, gate = Path(config.paths.stage), gate_of(config)
    if gate is None:
        return None
    target = state.look(stage).target
    if target and target.reason:  # the gate itself ended the stage; one step more must not take that back
        return Verdict(passed=True, stops=False, text=target.reason)
    passed, text = gate.judge(gates.values_until(read_steps(stage), gate.metric, step))
    return Verdict(passed, gate.stops and not passed, text)


def read_done(stage: Path) -> Done | None:
    """What `finish` noted about a stage, or None if the stage is not done or its model is not whole."""
    done = state.look(stage).done
    return None if done is None or broken_export(stage / "hf") else done
