"""Where a run stands: `<run>/curriculum.json`, written anew at every change so that it is right after any kill."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe.curriculum.stages import Stage
from recipe.files import write_atomic

FILE = "curriculum.json"
WAITING, RUNNING, DONE, GATE_FAILED, FAILED, INTERRUPTED = (
    "waiting",
    "running",
    "done",
    "gate failed",
    "failed",
    "interrupted",
)


def read(run: Path) -> dict[str, Any]:
    """The state of a run; without stages if it has none."""
    try:
        return json.loads((run / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"stages": []}


class State:
    """The stages of one start, each with status, global_step, target, reason, model, seconds and launches.

    `seconds` and `launches` count all starts of the run; a stage that was killed is `running` until the next start.
    """

    def __init__(self, run: Path, curriculum: str, stages: Sequence[Stage]) -> None:
        self.run = run
        before = {entry["folder"]: entry for entry in read(run)["stages"]}
        self.entries = {stage.name: self._entry(stage, before.pop(stage.folder, {})) for stage in stages}
        self._others = list(before.values())  # stages that were not chosen this time
        self._curriculum = curriculum
        self._write()

    @staticmethod
    def _entry(stage: Stage, before: dict[str, Any]) -> dict[str, Any]:
        fresh = {"status": WAITING, "global_step": 0, "target": None, "reason": None, "model": None, "seconds": 0.0}
        return {**fresh, "launches": 0, **before, "name": stage.name, "config": stage.config, "folder": stage.folder}

    def update(self, stage: Stage, **values: Any) -> dict[str, Any]:
        """Change a stage's entry and write the file; returns the entry."""
        entry = self.entries[stage.name]
        entry.update(values)
        self._write()
        return entry

    def _write(self) -> None:
        # the order of folders is not that of stages: a stage that was left out keeps its place by its name
        content = {
            "curriculum": self._curriculum,
            "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "stages": sorted([*self._others, *self.entries.values()], key=lambda entry: entry["folder"])
            if self._others
            else list(self.entries.values()),
        }
        try:
            write_atomic(self.run / FILE, json.dumps(content, indent=1) + "\n")
        except OSError as error:  # a full disk ends the stage with a message of its own
            print(f"{self.run / FILE} cannot be written: {error}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """The stages as text, for the end of a start."""
        lines = []
        for entry in self.entries.values():
            steps = f"{entry['global_step']}/{entry['target']}" if entry["target"] else str(entry["global_step"])
            reason = entry["reason"] or ""
            lines.append(f"{entry['folder']:16} {entry['status']:12} {steps:>9} steps  {reason}".rstrip())
        return "\n".join(lines)
