"""Runs the stages of a curriculum: each as a process of its own, from the model the one before exported.

A stage counts as done when it has reached its last step, or its gate, and exported its model. Whatever ends a start,
the same command goes on with the first unfinished stage, and that from its last whole checkpoint.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recipe import processes
from recipe.curriculum.stages import OF_THE_FIRST, Stage
from recipe.files import STRICT, PreflightError, StateFile
from recipe.preflight import model as preflight_model
from recipe.preflight import require
from recipe.settings import as_list, compose, quoted
from recipe.stage import console, end, starts
from recipe.stage.metrics_log import read_steps, time_line
from recipe.stage.state import Done, Step, look

FILE = "curriculum.json"
VALIDATION_ONLY = (
    *(f"stage.name={starts.BEFORE}", "stage.gate=null", "stage.handover=last"),
    *("trainer.val_only=true", "trainer.val_before_train=true", "trainer.save_freq=-1"),
)


class StageFailed(SystemExit):
    """A stage ended without being done; the message says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """Where a stage stands; one that was killed is `running` until the next start."""

    __pydantic_config__ = STRICT
    name: str
    folder: str
    status: Literal["waiting", "running", "done", "gate failed", "failed", "interrupted"] = "waiting"
    global_step: Step = 0
    target: Step | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Curriculum:
    """`curriculum.json`: where a run stands, written anew at every change so that it is right after any kill."""

    __pydantic_config__ = STRICT
    stages: tuple[Entry, ...] = ()


STATE = StateFile(Curriculum)


class Progress:
    """The stages of one start, and those of earlier starts that are not run now."""

    def __init__(self, run: Path, stages: Sequence[Stage]) -> None:
        self._path = run / FILE
        before = {entry.folder: entry for entry in (STATE.read_or_none(self._path) or Curriculum()).stages}
        now = {stage.folder: before.pop(stage.folder, Entry(stage.name, stage.folder)) for stage in stages}
        self.entries = dict(sorted({**before, **now}.items())) if before else now
        self.update(stages[0])

    def update(self, stage: Stage, **values: Any) -> None:
        """Change a stage's entry, and write the file."""
        self.entries[stage.folder] = replace(self.entries[stage.folder], name=stage.name, **values)
        try:
            STATE.write(self._path, Curriculum(tuple(self.entries.values())))
        except OSError as error:  # a full disk ends the stage with a message of its own
            print(f"{self._path} cannot be written: {error}", file=sys.stderr, flush=True)

    def done(self, stage: Stage, done: Done) -> None:
        """Note that a stage is done: why it ended, how its gate stands, and which model it hands on."""
        gate, best = done.gate, done.best
        parts = [done.reason or f"all {done.global_step} steps"]
        if gate and gate.text != done.reason:
            parts.append(f"gate {'passed' if gate.passed else 'not reached'}: {gate.text}")
        if best:
            parts.append(f"hands on step {best.step}, the best {best.metric} ({best.value:.3f})")
        status = "gate failed" if gate and gate.stops else "done"
        self.update(stage, status=status, global_step=done.global_step, target=done.target, reason="; ".join(parts))


def launch(module: str, arguments: Sequence[str], watch: console.Watch, note: Path) -> int:
    """Run `python -m module` as a child that is watched; returns its exit status."""
    return processes.run([sys.executable, "-m", module, *arguments], watch.log, watch, note)


def run_stages(run: Path, stages: Sequence[Stage]) -> None:
    """Run what is left of the stages; with `preflight_only` check them instead.

    Raises:
        StageFailed: a stage failed, or has not passed a gate that is required.
        KeyboardInterrupt: after everything has ended.
    """
    if any(stage.composed.preflight_only for stage in stages):
        return _check_stages(run, stages)
    with processes.alone(run) as note:
        progress = Progress(run, stages)
        _warm_start(run, stages, note)
        for number, stage in enumerate(stages):
            folder = run / stage.folder
            done = None if stage.composed.trainer.resume_mode == "disable" else end.read_done(folder)
            if done and (other := starts.other_start(stage.composed, first=number == 0)):
                raise StageFailed(other)
            if done and not (done.gate and done.gate.stops):
                print(f"{stage.folder}: already done, {done.global_step} steps (delete {folder} to repeat it)")
                progress.done(stage, done)
            else:
                _run_stage(folder, stage, progress, note, stages)
            if number == 0:
                os.environ.pop("MODEL", None)  # a start model is for the first stage


def _check_stages(run: Path, stages: Sequence[Stage]) -> None:
    """Make each stage's checks. A stage before that has no model yet is replaced by the start model."""
    given = [item for item in stages[0].overrides if item.startswith(OF_THE_FIRST)]
    results = {}
    warm_start = stages[0].composed.stage.warm_start
    start = os.environ.get("MODEL") or (_start_of_warm_start(stages[0]) if warm_start else None)
    for stage in stages:
        arguments, environment = [*stage.arguments, "preflight_only=true"], dict(os.environ)
        previous, warm = stage.composed.stage.previous, stage.composed.stage.warm_start
        before = run / previous / "hf" if previous else preflight_model.warm_started(stage.composed)
        if (previous or warm) and (before / "config.json").is_file():
            environment.pop("MODEL", None)
        else:
            arguments += ["stage.previous=null", *given] if previous else []
            environment |= {"MODEL": start} if start else {}
        print(f"\n== {stage.folder}", flush=True)
        results[stage.folder] = subprocess.call([sys.executable, "-m", "recipe.train", *arguments], env=environment)
    table = "\n".join(f"{name}: {'cannot start, see above' if code else 'passed'}" for name, code in results.items())
    if any(results.values()):
        raise StageFailed(f"\n{table}")
    print(f"\n{table}")


def _launched(
    folder: Path, what: str, module: str, arguments: Sequence[str], stages: Sequence[Stage], note: Path
) -> None:
    """Run what comes before the first stage. Raises StageFailed where it fails."""
    watch = console.Watch(folder, console.new_log(note.parent, folder.name))
    print(f"{folder.name}: {what}, log in {watch.log}", flush=True)
    if code := launch(module, arguments, watch, note):
        raise _failed(folder.name, watch.log, f"ended with status {code}", stages)


def _warm_start(run: Path, stages: Sequence[Stage], note: Path) -> None:
    """The warm start that the first stage's `stage.warm_start` names, unless it is there; the stage begins with it.

    It is of MODEL. A model that is given otherwise, or with the tiny policy's profile, is not warm-started. With
    `stage.before` the model that it begins with is validated first, once.
    """
    first = stages[0]
    config, name, tiny = first.composed, first.composed.stage.warm_start, first.composed.paths.get("tiny_policy")
    model, before = config.actor_rollout_ref.model, run / starts.BEFORE
    given = model.path is not None and (tiny or model.path != os.environ.get("MODEL"))
    if given or model.lora_adapter_path is not None or config.stage.previous:
        return
    if name and config.stage.before and not read_steps(before) and (begin := _start_of_warm_start(first)) is not None:
        rows = ",".join(map(quoted, as_list(config.data.train_files)))  # the profile's own are the stage's by name
        arguments = [*first.arguments, *VALIDATION_ONLY, f"data.train_files=[{rows}]"]
        arguments.append(f"actor_rollout_ref.model.path={quoted(begin)}")
        _launched(before, f"validates {begin}", "recipe.train", arguments, stages, note)
    folder = preflight_model.warm_started(config)
    if not name and not (folder / "config.json").is_file():
        try:
            if end.read_done(run / first.folder) is None:
                require(preflight_model.start(config, []))
        except PreflightError as error:
            raise StageFailed(f"{first.folder} cannot start: {error}") from error
    elif not (folder / "config.json").is_file():
        folder = Path(tiny) if tiny else folder
        arguments = ["--config-name", name, *_profile(first)]
        arguments += [item for item in first.overrides if item.startswith("paths.data=")]
        _launched(folder.parent, "warm start", "recipe.sft", arguments, stages, note)
    if name:
        os.environ.pop("MODEL", None)
        model.path = None


def _profile(first: Stage) -> list[str]:
    return [f"sft_{item}" for item in first.overrides if item.startswith("hardware=")]


def _start_of_warm_start(first: Stage) -> str | None:
    """The model that the warm start begins with; None for one that it makes itself."""
    path = compose(str(first.composed.stage.warm_start), _profile(first), group="sft_hardware").model.path
    return None if path is None else str(path)


def _run_stage(folder: Path, stage: Stage, progress: Progress, note: Path, stages: Sequence[Stage]) -> None:
    def advance(**values: object) -> None:
        target = look(folder).target
        progress.update(stage, **{"target": target.planned if target else None, **values})

    began, earlier = time.time(), look(folder).done
    watch = console.Watch(folder, console.new_log(folder.parent, stage.folder), lambda step: advance(global_step=step))
    print(f"{stage.folder}: started, log in {watch.log}", flush=True)
    advance(status="running", reason=None)
    try:
        first = stage.composed.stage.before and not stage.composed.stage.previous
        code = launch("recipe.train", [*stage.arguments, *["trainer.val_before_train=true"] * first], watch, note)
    except KeyboardInterrupt:
        advance(status="interrupted", reason="interrupted")
        raise
    watch()
    done = end.read_done(folder)
    if done is None or done == earlier:  # of an earlier launch
        reason = f"ended with status {code}" if code else "ended without reaching its last step"
        advance(status="failed", reason=console.cause(watch.log) or reason)
        raise _failed(stage.folder, watch.log, reason, stages)
    progress.done(stage, done)
    entry = progress.entries[stage.folder]
    print(f"{stage.folder}: {entry.status} in {console.duration(time.time() - began)}, {entry.reason}", flush=True)
    if times := time_line(folder):
        print(f"{stage.folder}: {times}", flush=True)
    if done.gate and done.gate.stops:
        raise StageFailed(
            f"\n{stage.folder} has trained its {done.global_step} steps and has not passed its gate: {done.gate.text}. "
            f"{starts.gate_advice(*(each.composed for each in stages))}"
        )


def _failed(name: str, log: Path, what: str, stages: Sequence[Stage]) -> StageFailed:
    """The failure of a stage, with the end of its log and, where one is known, the cause."""
    same = f"the same command{starts.going_on(*(stage.composed for stage in stages))}"
    return StageFailed(console.failure(name, log, what, same))
