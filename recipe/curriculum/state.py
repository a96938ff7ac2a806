"""Where a run stands: `<run>/curriculum.json`, written anew at every change so that it is right after any kill."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recipe.curriculum.stages import Stage
from recipe.files import STRICT, Damaged, StateFile, set_aside
from recipe.stage.state import Step, Verdict

FILE = "curriculum.json"
Status = Literal["waiting", "running", "done", "gate failed", "failed", "interrupted"]


@dataclass(frozen=True)
class Entry:
    """One stage. `seconds` and `launches` count all starts; a stage that was killed is `running` until the next one."""

    __pydantic_config__ = STRICT
    name: str
    config: str
    folder: str
    status: Status = "waiting"
    global_step: Step = 0
    target: Step | None = None
    reason: str | None = None
    model: str | None = None
    seconds: float = 0.0
    launches: Step = 0
    log: str | None = None
    model_step: Step | None = None
    gate: Verdict | None = None


@dataclass(frozen=True)
class Curriculum:
    """`curriculum.json`."""

    __pydantic_config__ = STRICT
    curriculum: str = ""
    pid: int = 0
    time: str = ""
    stages: tuple[Entry, ...] = ()


STATE = StateFile(Curriculum)


def read(run: Path) -> Curriculum:
    """The state of a run; without stages if it has none, or a damaged one."""
    return STATE.read_or_none(run / FILE) or Curriculum()


class State:
    """The stages of one start."""

    def __init__(self, run: Path, curriculum: str, stages: Sequence[Stage]) -> None:
        self.run, self._curriculum = run, curriculum
        try:
            earlier = STATE.read(run / FILE) or Curriculum()
        except Damaged as error:  # the stages' own notes say what is done
            print(f"{error}; it is set aside as {set_aside(run / FILE).name} and made anew", flush=True)
            earlier = Curriculum()
        before = {entry.folder: entry for entry in earlier.stages}
        self.entries: dict[str, Entry] = {}
        for stage in stages:
            entry = before.pop(stage.folder, None) or Entry(stage.name, stage.config, stage.folder)
            self.entries[stage.name] = replace(entry, name=stage.name, config=stage.config)
        self._others = list(before.values())  # stages that were not chosen this time
        self.update()

    def update(self, stage: Stage | None = None, **values: Any) -> None:
        """Change a stage's entry, and write the file."""
        if stage is not None:
            self.entries[stage.name] = replace(self.entries[stage.name], **values)
        # the order of folders is not that of stages: a stage that was left out keeps its place by its name
        entries = [*self._others, *self.entries.values()]
        content = Curriculum(
            curriculum=self._curriculum,
            pid=os.getpid(),
            time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            stages=tuple(sorted(entries, key=lambda entry: entry.folder) if self._others else entries),
        )
        try:
            STATE.write(self.run / FILE, content)
        except OSError as error:  # a full disk ends the stage with a message of its own
            print(f"{self.run / FILE} cannot be written: {error}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """The stages as text, for the end of a start."""
        lines = []
        for entry in self.entries.values():
            steps = f"{entry.global_step}/{entry.target}" if entry.target else str(entry.global_step)
            lines.append(f"{entry.folder:16} {entry.status:12} {steps:>9} steps  {entry.reason or ''}".rstrip())
        return "\n".join(lines)
