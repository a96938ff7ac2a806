"""What `interaction.environment` asks of an environment's package, for a file of entries."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from bfcl_env.entries.mistakes import Mistakes, line
from bfcl_env.entries.tasks import OwnTask, load
from bfcl_env.environment import Options
from bfcl_env.single_turn.components import SEED
from bfcl_env.single_turn.tasks import SingleTurnTask
from bfcl_env.source import VERSION

SECONDS = 10.0
"""CPU time for the gold of one entry, which takes milliseconds."""

ROOT = Path(__file__).parents[2]


class FileEnvironment:
    """The tasks of one file."""

    Options = Options

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._checked = False

    def load_tasks(self) -> tuple[OwnTask, ...]:
        """All tasks, in the order of the file.

        Raises:
            EntriesError: something is wrong with the file as it stands there.
        """
        tasks, mistakes = self._read
        mistakes.check()
        return tasks

    def check_tasks(self) -> None:
        """Play the gold of every entry, in a process that is ended where one hangs; print what does nothing.

        Raises:
            EntriesError: something is wrong, as it stands there or when it is played.
        """
        if self._checked:
            return
        tasks, mistakes = self._read
        found = Mistakes(self._path, mistakes.count, [*mistakes.lines])
        if tasks:
            _play(self._name, self._path, tasks, found)
        found.check()
        if mistakes.idle:
            more = f"; so do {len(mistakes.idle) - 1} more" if len(mistakes.idle) > 1 else ""
            print(f"NOTE {self._path}: {line(mistakes.idle[0])}{more}", flush=True)
        for note in mistakes.notes:
            print(f"NOTE {self._path}: {note}", flush=True)
        self._checked = True

    def audit_known(self) -> Mapping[str, str]:
        """What an audit finds in single-turn tasks, as in BFCL's own."""
        from bfcl_env.single_turn import audit

        return audit.known_of(task.played for task in self.load_tasks() if isinstance(task.played, SingleTurnTask))

    def made_from(self) -> dict[str, Any]:
        """For a manifest: the file, and what its multi-turn entries are played on."""
        digest = sha256(self._path.read_bytes()).hexdigest()
        return {"seed": SEED, "bfcl_eval": VERSION, "environment_sha256": digest}

    @cached_property
    def _read(self) -> tuple[tuple[OwnTask, ...], Mistakes]:
        return load(self._name, self._path)


def _play(name: str, path: Path, tasks: tuple[OwnTask, ...], found: Mistakes) -> None:
    """What is wrong with entries when they are played."""
    command = [sys.executable, "-m", "bfcl_env.entries.played", name, str(path.absolute()), str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    last = 0
    for text in done.stdout.splitlines():
        last, *said = json.loads(text)
        if said:
            found.add(tasks[last].place, *said)
    if done.returncode:
        hung = done.returncode == -signal.SIGVTALRM
        how = f"that has not ended after {SECONDS:g} s of CPU time" if hung else f"with exit status {done.returncode}"
        left = len(tasks) - last - 1
        more = f" (the next {left} were not played)" if left else ""
        found.add(tasks[last].place, "", f"an episode {how}{more}", "one of milliseconds")
