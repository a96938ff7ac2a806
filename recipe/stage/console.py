"""What a person sees while a stage trains: a line for each step, and each alarm. Everything else is in the log."""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

from recipe.stage.metrics_log import read_steps
from recipe.stage.state import look

SHOWN = {
    "critic/score/mean": "reward {:.3f}",
    "train/progress": "progress {:.3f}",
    "train/acc": "accuracy {:.3f}",
    "actor/kl_loss": "kl {:.4f}",
    "actor/grad_norm": "grad_norm {:.3g}",
    "perf/throughput": "{:.0f} tokens/s",
    "timing_s/step": "{:.1f} s",
}
"""Numbers of a step that a person watches, where they are logged. The throughput is that of one GPU."""

VALIDATED = {
    "val/score": "reward {:.3f}",
    "val/progress": "progress {:.3f}",
    "val/acc": "accuracy {:.3f}",
    "val_guard/acc": "of the guard {:.3f}",
}

BEGINS, ENDS = "training begins", "training has ended"
"""Lines between which a log is verl's."""
SAID = ("ALARM ", "CLUSTER ", "GATE ", "NOTE the reward ", "RAY ", "RESUME ", "REWARD FAILED ")
"""Beginnings of lines in the log that are meant for the console too."""

BEFORE = re.compile(r"^(\x1b\[[\d;]*m)*(\([^)]*pid=\d+[^)]*\))?(\x1b\[[\d;]*m)* *")
"""What Ray puts before a worker's line."""

ERROR = re.compile(r"[\w.]*(?:Error|Exception|GroupsLost|GroupsAlike): (.{10,})")
"""An exception in a log."""

FULL = "the disk is full: free some room, or set paths.run to a folder on another disk"
EACH = 15
"""Seconds between two lines of a warm start, which makes many steps in a second."""

LEAST_FREE = 32 * 10**6
"""Bytes. With less than this, a stage that failed failed for it, whatever it was still able to say."""

CAUSES = {
    r"\nRAY (its \w+ has died)": r"Ray could not go on: \1. The machine may be too busy for it",
    r"CLUSTER node (.*) was lost": r"the cluster has lost the node \1. `bash run_cluster.sh` there joins it again",
    r"\nRAY (worker .* memory ran out.*)": r"\1",
    r"(?:WorkerProc|EngineCore) failed to start[\s\S]*?\b((?:\w+\.)*\w*Error: .*)": r"vLLM could not start: \1",
    r"\nRAY (worker .*)": r"\1",
    r"GCS.*(unavailable|is dead|connection.*lost)|Failed to connect to GCS|lost connection to the GCS": (
        "the cluster's head does not answer any more: start the cluster again (bash run_cluster.sh on each node)"
    ),
    r"No space left on device|ENOSPC|File too large|PytorchStreamWriter failed writing": FULL,
    r"ActorDiedError|ActorUnavailableError|WorkerCrashedError|OwnerDiedError|worker died unexpectedly": (
        "a worker process died; dmesg says if memory ran out (docs/resume.md)"
    ),
    r"OutOfMemoryError|CUDA out of memory": "out of memory: see docs/resume.md",
}
"""What in a log means that a stage could not go on, and what to do about it; `\\1` is what the pattern has found."""


def new_log(run: Path, name: str) -> Path:
    """The file for the log of a start."""
    return run / "logs" / f"{name}_{time.strftime('%Y%m%d-%H%M%S')}.log"


def duration(seconds: float) -> str:
    """A time as a person says it: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def step_line(numbers: Mapping[str, float]) -> str:
    """The numbers of a step as a line; the warm start has a loss only, and that of its validation."""
    if "train/loss" in numbers:
        validated = f"  validation loss {numbers['val/loss']:.3f}" if "val/loss" in numbers else ""
        return f"loss {numbers['train/loss']:.3f}{validated}"
    parts = [text.format(numbers[name]) for name, text in SHOWN.items() if name in numbers]
    held_out = [text.format(numbers[name]) for name, text in VALIDATED.items() if name in numbers]
    return "  ".join([*parts, *(["validation " + ", ".join(held_out)] if held_out else [])])


def time_left(steps: Mapping[int, Mapping[str, float]], last: int) -> str:
    """How long the steps up to `last` will take, from what the newest five took with their validations."""
    recent = [numbers for _, numbers in sorted(steps.items())[-5:] if "timing_s/step" in numbers]
    if not recent or max(steps) >= last:
        return ""
    each = fmean(numbers["timing_s/step"] + numbers.get("timing_s/testing", 0.0) for numbers in recent)
    return f"{duration(each * (last - max(steps)))} left"


class Watch:
    """Prints each step of a launch as it is logged, and what its log says in lines that begin as `SAID`.

    Args:
        on_step: called with each new step.
        alone: of a stage that is started by itself: what its log says before training begins and after it has ended is
            printed too.
    """

    def __init__(
        self, stage: Path, log: Path, on_step: Callable[[int], None] = lambda step: None, alone: bool = False
    ) -> None:
        self.stage, self.log, self.on_step, self.alone = stage, log, on_step, alone
        self.training = not alone
        """Whether what the log says now is verl's."""
        self._earlier = {path.name for path in (stage / "metrics").glob("*.jsonl")}
        self._shown: set[int] = set()
        self._printed = 0.0
        self._read = log.stat().st_size if log.exists() else 0

    def __call__(self) -> None:
        steps = read_steps(self.stage, skip=self._earlier)
        for step in [step for step in steps if step not in self._shown]:
            self._shown.add(step)
            self.on_step(step)
            quiet = "train/loss" in steps[step] and "val/loss" not in steps[step]
            if not quiet or time.time() - self._printed > EACH:
                print(self._line(step, steps), flush=True)
                self._printed = time.time()
        for line in self._new_lines():
            said = BEFORE.sub("", line)
            if said in (BEGINS, ENDS) and self.alone:
                self.training = said == BEGINS
            elif not self.training:
                print(said, flush=True)
            elif said.startswith(SAID):
                print(f"{self.stage.name}  {said}", flush=True)

    def _new_lines(self) -> list[str]:
        """Lines of the log that are complete now and were not before."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def _line(self, step: int, steps: Mapping[int, Mapping[str, float]]) -> str:
        target = look(self.stage).target
        last = target.total_steps if target else 0
        until = {other: numbers for other, numbers in steps.items() if other <= step}
        number = f"{step:3}/{last}" if last else f"{step:3}"
        return "  ".join(filter(None, [self.stage.name, number, step_line(steps[step]), time_left(until, last)]))


def failure(name: str, log: Path, what: str, again: str) -> str:
    """That a stage failed: the end of its log and, where one is known, the cause; `again` is the command to go on."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [error[1] for line in lines if (error := ERROR.match(BEFORE.sub("", line)))]
    known = f"Its last error: {errors[-1]}\n" if errors else ""
    if found := cause(log):
        known = f"Most likely {found}. "
    tail = "\n".join(lines[-15:])
    return f"{tail}\n\n{name} {what}. {known}The whole log: {log}\nWhat was done is kept; {again} goes on from there."


def cause(log: Path) -> str | None:
    """Why a stage failed, if its log or its disk shows one of the known causes."""
    if log.parent.exists() and shutil.disk_usage(log.parent).free < LEAST_FREE:
        return FULL
    text = log.read_text(errors="replace") if log.exists() else ""
    found = ((re.search(pattern, text), meaning) for pattern, meaning in CAUSES.items())
    return next((match.expand(meaning) for match, meaning in found if match), None)
