"""Runs the stages of a curriculum: each as a process of its own, from the model the one before exported.

A stage counts as done when it has reached its last step, or its gate, and exported its model. Whatever ends a start,
the same command goes on with the first unfinished stage, and that from its last whole checkpoint.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from recipe import processes
from recipe.curriculum.stages import OF_THE_FIRST, Stage
from recipe.curriculum.state import State
from recipe.files import PreflightError
from recipe.preflight import model as preflight_model
from recipe.preflight import require
from recipe.settings import as_list, compose, quoted
from recipe.stage import console, end, starts
from recipe.stage.metrics_log import read_steps, time_line
from recipe.stage.state import Done, look


class StageFailed(SystemExit):
    """A stage ended without being done; the message says why and what to do."""


VALIDATION_ONLY = (
    *(f"stage.name={starts.BEFORE}", "stage.gate=null", "stage.handover=last"),
    *("trainer.val_only=true", "trainer.val_before_train=true", "trainer.save_freq=-1"),
)


def launch(module: str, arguments: Sequence[str], watch: console.Watch, note: Path) -> int:
    """Run `python -m module` as a child that is watched; returns its exit status."""
    return processes.run([sys.executable, "-m", module, *arguments], watch.log, watch, note)


def run_stages(run: Path, curriculum: str, stages: Sequence[Stage]) -> None:
    """Run what is left of the stages; with `preflight_only` check them instead.

    Raises:
        StageFailed: a stage failed, or has not passed a gate that is required.
        KeyboardInterrupt: after everything has ended.
    """
    if any(stage.composed.preflight_only for stage in stages):
        return _check_stages(run, stages)
    with processes.alone(run) as note:
        state = State(run, curriculum, stages)
        _warm_start(run, stages, note)
        for number, stage in enumerate(stages):
            folder = run / stage.folder
            starts_over = stage.composed.trainer.resume_mode == "disable"
            done = None if starts_over else end.read_done(folder)
            other_model, other_data = starts.other_start(stage.composed) if done else (None, None)
            if other := (other_model if number == 0 else None) or other_data:
                raise StageFailed(other)
            if done and not (done.gate and done.gate.stops):
                print(f"{stage.folder}: already done, {done.global_step} steps (delete {folder} to repeat it)")
                _note_done(state, stage, done)
            else:
                _run_stage(run, stage, state, note, stages)
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


def _before(run: Path, stages: Sequence[Stage], note: Path) -> None:
    """With `stage.before`: validate the model that the warm start begins with, once."""
    first, folder = stages[0], run / starts.BEFORE
    if not first.composed.stage.before or read_steps(folder) or (model := _start_of_warm_start(first)) is None:
        return
    watch = console.Watch(folder, console.new_log(run, folder.name))
    print(f"{folder.name}: validates {model}, log in {watch.log}", flush=True)
    rows = ",".join(map(quoted, as_list(first.composed.data.train_files)))  # the profile's own are the stage's by name
    arguments = [*first.arguments, *VALIDATION_ONLY]
    arguments += [f"data.train_files=[{rows}]", f"actor_rollout_ref.model.path={quoted(model)}"]
    if code := launch("recipe.train", arguments, watch, note):
        raise _failed(folder.name, watch.log, f"ended with status {code}", stages)


def _warm_start(run: Path, stages: Sequence[Stage], note: Path) -> None:
    """The warm start that the first stage's `stage.warm_start` names, unless it is there; the stage begins with it.

    It is of MODEL. A model that is given otherwise, or with the tiny policy's profile, is not warm-started.
    """
    first = stages[0]
    config, name, tiny = first.composed, first.composed.stage.warm_start, first.composed.paths.get("tiny_policy")
    model = config.actor_rollout_ref.model
    given = model.path is not None and (tiny or model.path != os.environ.get("MODEL"))
    if given or model.lora_adapter_path is not None or config.stage.previous:
        return
    if name:
        _before(run, stages, note)
    folder = preflight_model.warm_started(config)
    if not (folder / "config.json").is_file():
        if not name:
            try:
                if end.read_done(run / first.folder) is None:
                    require(preflight_model.start(config, []))
                return
            except PreflightError as error:
                raise StageFailed(f"{first.folder} cannot start: {error}") from error
        folder = Path(tiny) if tiny else folder
        watch = console.Watch(folder.parent, console.new_log(run, folder.parent.name))
        profile = [f"sft_{item}" for item in first.overrides if item.startswith("hardware=")]
        profile += [item for item in first.overrides if item.startswith("paths.data=")]
        print(f"{folder.parent.name}: warm start, log in {watch.log}", flush=True)
        if code := launch("recipe.sft", ["--config-name", name, *profile], watch, note):
            raise _failed(folder.parent.name, watch.log, f"ended with status {code}", stages)
    if name:
        os.environ.pop("MODEL", None)
        model.path = None


def _start_of_warm_start(first: Stage) -> str | None:
    """The model that the warm start begins with; None for one that it makes itself."""
    profile = [f"sft_{item}" for item in first.overrides if item.startswith("hardware=")]
    path = compose(str(first.composed.stage.warm_start), profile, group="sft_hardware").model.path
    return None if path is None else str(path)


def _run_stage(run: Path, stage: Stage, state: State, note: Path, stages: Sequence[Stage]) -> None:
    folder, began = run / stage.folder, time.time()
    before = state.entries[stage.name].seconds
    watch = console.Watch(folder, console.new_log(run, stage.folder), lambda step: advance(global_step=step))

    def advance(**values: object) -> None:
        target = look(folder).target
        values.setdefault("target", target.planned if target else None)
        state.update(stage, seconds=round(before + time.time() - began, 1), **values)

    earlier = look(folder).done
    print(f"{stage.folder}: started, log in {watch.log}", flush=True)
    launches = state.entries[stage.name].launches + 1
    advance(status="running", reason=None, launches=launches, log=str(watch.log))
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
    advance(global_step=done.global_step)
    _note_done(state, stage, done)
    print(f"{stage.folder}: done in {console.duration(time.time() - began)}, {_ending(done)}", flush=True)
    if times := time_line(folder):
        print(f"{stage.folder}: {times}", flush=True)
    if done.gate and done.gate.stops:
        advance(status="gate failed")
        raise StageFailed(
            f"\n{state.table()}\n\n{stage.folder} has trained its {done.global_step} steps and has not passed its "
            f"gate: {done.gate.text}. {starts.gate_advice(*(each.composed for each in stages))}"
        )


def _note_done(state: State, stage: Stage, done: Done) -> None:
    state.update(
        stage,
        status="done",
        global_step=done.global_step,
        target=done.target,
        reason=_ending(done),
        model=str(state.run / stage.folder / "hf"),
        model_step=done.model_step,
        gate=done.gate,
    )


def _ending(done: Done) -> str:
    """Why the stage ended, how its gate stands, and which model it hands on."""
    gate, best = done.gate, done.best
    parts = [done.reason or f"all {done.global_step} steps"]
    if gate and gate.text != done.reason:
        parts.append(f"gate {'passed' if gate.passed else 'not reached'}: {gate.text}")
    if best:
        parts.append(f"hands on step {best.step}, the best {best.metric} ({best.value:.3f})")
    return "; ".join(parts)


def _failed(name: str, log: Path, what: str, stages: Sequence[Stage]) -> StageFailed:
    """The failure of a stage, with the end of its log and, where one is known, the cause."""
    same = f"the same command{starts.going_on(*(stage.composed for stage in stages))}"
    return StageFailed(console.failure(name, log, what, same))
