"""A file of JSON lines that one process at a time appends to, so that it can be killed anywhere and started again.

A power cut or a full disk costs the line that was being written and no other: the next start cuts it off.
"""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from recipe.files import lines, require_file


class Appended:
    """The file, locked for as long as this lives; to be closed.

    Raises:
        BlockingIOError: another process has it.
        Damaged: it is no plain file.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            require_file(path)
        self._file = path.open("ab+", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            whole = max((begin + len(line) for begin, line in lines(path) if line.endswith(b"\n")), default=0)
            self._file.truncate(whole)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Twice is fine."""
        self._file.close()

    def add(self, line: dict[str, Any]) -> None:
        """Append one line.

        Raises:
            OSError: it cannot be written; what was kept before is whole.
        """
        left = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(end)
            raise
