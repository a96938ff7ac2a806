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
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from recipe.curriculum.stages import OF_THE_FIRST, Stage
from recipe.files import StateFile, Strict
from recipe.machine import processes
from recipe.preflight import model as preflight_model
from recipe.settings import as_list, compose, quoted
from recipe.stage import console, end, starts
from recipe.stage.metrics_log import read_steps, time_line
from recipe.stage.state import Done, Start, Step, look, resumes, update

FILE = "curriculum.json"
VALIDATION_ONLY = (
    *(f"stage.name={starts.BEFORE}", "stage.gate=null", "stage.handover=last"),
    *("trainer.val_only=true", "trainer.val_before_train=true", "trainer.save_freq=-1", "trainer.resume_mode=disable"),
)


class StageFailed(SystemExit):
    """A stage ended without being done; the message says why and what to do."""


@dataclass(frozen=True)
class Entry(Strict):
    """Where a stage stands; one that was killed is `running` until the next start."""

    name: str
    folder: str
    status: Literal["waiting", "running", "done", "gate failed", "failed", "interrupted"] = "waiting"
    global_step: Step = 0
    target: Step | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Curriculum(StateFile):
    """`curriculum.json`: where a run stands, written anew at every change so that it is right after any kill."""

    stages: tuple[Entry, ...] = ()


class Progress:
    """The stages of one start, and those of earlier starts that are not run now."""

    def __init__(self, run: Path, stages: Sequence[Stage]) -> None:
        self._path = run / FILE
        before = {entry.folder: entry for entry in (Curriculum.read_or_none(self._path) or Curriculum()).stages}
        now = {stage.folder: before.pop(stage.folder, Entry(stage.name, stage.folder)) for stage in stages}
        self.entries = dict(sorted({**before, **now}.items())) if before else now
        self.update(stages[0])

    def update(self, stage: Stage, **values: Any) -> None:
        """Change a stage's entry, and write the file."""
        self.entries[stage.folder] = replace(self.entries[stage.folder], name=stage.name, **values)
        try:
            Curriculum(tuple(self.entries.values())).write(self._path)
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
    given = [item for item in stages[0].overrides if OF_THE_FIRST.match(item)]
    results, warm = {}, _of_warm_start(run, stages)[1] if stages[0].composed.stage.warm_start else None
    start, warmed = os.environ.get("MODEL") or (warm and warm.model.path), warm and _up_to_date(warm)
    for stage in stages:
        arguments, environment = [*stage.arguments, "preflight_only=true"], dict(os.environ)
        previous = stage.composed.stage.previous
        before = run / previous / "hf" if previous else preflight_model.warm_started(stage.composed)
        if (previous or warmed) and (before / "config.json").is_file():
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
    """The warm start that the first stage's `stage.warm_start` names, unless one made of the same is there.

    The stage begins with it. It is of MODEL. A model that is given otherwise, or with the tiny policy's profile, is not
    warm-started. With `stage.before` the model that it begins with is validated first, once.
    """
    first = stages[0]
    config, model, named = first.composed, first.composed.actor_rollout_ref.model, os.environ.get("MODEL")
    tiny, own = config.paths.get("tiny_policy"), preflight_model.warm_started(config) / "config.json"
    # with the tiny policy's profile a MODEL, or a warm start made by hand in this run, is trained as it is
    given = own.is_file() or model.path is not None if tiny else model.path not in (None, named)
    if given or model.lora_adapter_path is not None or config.stage.previous or not config.stage.warm_start:
        return
    arguments, warm = _of_warm_start(run, stages)
    began = look(run / first.folder).began
    goes_on = config.trainer.resume_mode != "disable" and (resumes(config) or end.read_done(run / first.folder))
    gone = os.path.isabs(str(warm.model.path)) and not os.path.exists(warm.model.path)  # and nothing needs it any more
    known = named or (began and began.made and not gone)
    if goes_on and began and known and began.made != starts.fingerprint(warm):
        raise StageFailed(
            f"{first.folder} began with another model than this warm start of {warm.model.path or 'the tiny policy'}. "
            f"Set model, settings and rows as they were, or stage.warm_start=null to go on. {starts.REMEDY}"
        )
    if config.stage.before and warm.model.path is not None and not gone:
        _validate_before(run, stages, warm, note)
    if not (began and goes_on) and not _up_to_date(warm):
        _launched(Path(warm.paths.stage), "warm start", "recipe.sft", arguments, stages, note)
    os.environ.pop("MODEL", None)
    model.path = None


def _of_warm_start(run: Path, stages: Sequence[Stage]) -> tuple[list[str], DictConfig]:
    """The arguments of `python -m recipe.sft`, and its configuration. Without MODEL it is of the model of last time."""
    config, overrides = stages[0].composed, stages[0].overrides
    tiny, before = config.paths.get("tiny_policy"), look(preflight_model.warm_started(config).parent).began
    where = f"tiny_policy={quoted(str(Path(tiny).parent))}" if tiny else f"run={quoted(str(run))}"
    of_both = ("paths.data=", "launcher.precision=")
    given = [f"paths.{where}", *(item for item in overrides if item.lstrip("+").startswith(of_both))]
    given += [f"sft_{item}" for item in overrides if item.startswith("hardware=")]
    if all(stage.composed.trainer.resume_mode == "disable" for stage in stages):
        given.append("trainer.resume_mode=disable")
    elif before and not tiny and not os.environ.get("MODEL"):
        given.append(f"model.path={quoted(before.model)}")
    name = config.stage.warm_start
    return ["--config-name", name, *given], compose(name, given, group="sft_hardware")


def _up_to_date(warm: DictConfig) -> bool:
    """Whether a warm start is there, whole, and made of the same."""
    stage = Path(warm.paths.stage)
    began = None if warm.trainer.resume_mode == "disable" else look(stage).began
    return began is not None and began.digest == starts.fingerprint(warm) and end.read_done(stage) is not None


def _validate_before(run: Path, stages: Sequence[Stage], warm: DictConfig, note: Path) -> None:
    """Validate the model that the warm start begins with, unless it has played these rows by these rules, as long."""
    config, begin, folder = stages[0].composed, str(warm.model.path), run / starts.BEFORE
    played, began = [begin, *as_list(config.data.val_files), *as_list(config.environment.guard)], look(folder).began
    full: Any = OmegaConf.to_container(config, resolve=True)
    rules = [full["interaction"][name] for name in ("val", "protocol", "docs", "max_tokens_per_reply", "user")]
    rules += [full["actor_rollout_ref"]["rollout"]["val_kwargs"], full["data"]["max_response_length"]]
    played.append(sha256(str(rules).encode()).hexdigest())
    known = began is not None and began.made == starts.digest(played) and read_steps(folder)
    if known and warm.trainer.resume_mode != "disable":
        return
    arguments = [*stages[0].arguments, *VALIDATION_ONLY, f"actor_rollout_ref.model.path={quoted(begin)}"]
    rows = ",".join(map(quoted, as_list(config.data.train_files)))  # the profile's own are the stage's by name
    _launched(folder, f"validates {begin}", "recipe.train", [*arguments, f"data.train_files=[{rows}]"], stages, note)
    update(folder, began=replace(look(folder).began or Start(begin), made=starts.digest(played)))


def _run_stage(folder: Path, stage: Stage, progress: Progress, note: Path, stages: Sequence[Stage]) -> None:
    def advance(**values: object) -> None:
        target = look(folder).target
        progress.update(stage, **{"target": target.planned if target else None, **values})

    began, earlier = time.time(), look(folder).done
    watch = console.Watch(folder, console.new_log(folder.parent, stage.folder), lambda step: advance(global_step=step))
    print(f"{stage.folder}: started, log in {watch.log}", flush=True)
    advance(status="running", reason=None)
    try:
        code = launch("recipe.train", stage.arguments, watch, note)
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
        said = f"has trained its {done.global_step} steps and has not passed its gate: {done.gate.text}"
        raise StageFailed(f"\n{stage.folder} {said}. {starts.gate_advice(*(each.composed for each in stages))}")


def _failed(name: str, log: Path, what: str, stages: Sequence[Stage]) -> StageFailed:
    """The failure of a stage, with the end of its log and, where one is known, the cause."""
    same = f"the same command{starts.going_on(*(stage.composed for stage in stages))}"
    return StageFailed(console.failure(name, log, what, same))
