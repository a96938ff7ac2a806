"""State files: what one start writes and a later one reads.

Every such file is one kind of frozen dataclass as JSON. It is replaced whole, so that a kill leaves the old text or
the new one; it carries a version, so that a file of another release is known as such; and a damaged one is a `Damaged`
that says so, never a traceback: whoever reads it says whether it can be made anew (`set_aside`) or what to do.
"""

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from recipe import typed

T = TypeVar("T")

LARGEST = 1 << 26
"""Bytes of a state file. The largest, a manifest, grows by 2 KB with each start."""


class Damaged(ValueError):
    """A state file that is there and cannot be used. The message names it and says what is wrong with it."""


def write_atomic(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a start after a kill or a power cut, sees the old text or the new one.

    Raises:
        OSError: it cannot be written; what stood there before still does. The message names the file.
        UnicodeEncodeError: the text holds half a character.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename is None:  # a write has no name, unlike an open
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def read_bounded(path: Path) -> bytes:
    """The content of a file of ours, none of which is large.

    Raises:
        OSError: it is not there, cannot be read, is no file (a pipe would never end) or has more than `LARGEST` bytes.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError("it is no file")
    if state.st_size > LARGEST:
        raise OSError(f"it has {state.st_size} bytes")
    return path.read_bytes()


def told(error: OSError) -> str:
    """A fault of the disk in one line: what happened to which file."""
    if error.strerror is None and error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][-1])  # of a folder that was copied: a reason for each file
    return f"{error.strerror}: {error.filename}" if error.filename is not None else str(error)


def set_aside(path: Path) -> Path:
    """Rename a file or folder that must not be used and must not be lost; returns its new path beside the old one."""
    number, aside = 1, path.with_name(f"{path.name}.aside")
    while aside.exists() or aside.is_symlink():
        number += 1
        aside = path.with_name(f"{path.name}.aside{number}")
    return path.rename(aside)


@dataclass(frozen=True)
class StateFile(Generic[T]):
    """One kind of state file."""

    kind: type[T]
    """A frozen dataclass with `__pydantic_config__ = typed.STRICT`."""
    version: int = 1
    """A file without one is of version 1."""
    earlier: Callable[[Any], Any] = lambda content: content
    """Makes of the content that an earlier release wrote what `kind` has; leaves any other as it is."""

    def read(self, path: Path) -> T | None:
        """What the file says; None where there is none.

        Raises:
            Damaged: it is empty, cut off, no UTF-8, no JSON, of another version, or lacks or has what it should not.
        """
        try:
            content: Any = self.earlier(json.loads(read_bounded(path).decode("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise Damaged(f"{path} cannot be read: {error or type(error).__name__}") from error
        if not isinstance(content, dict):
            raise Damaged(f"{path} holds {typed.shown(content)}; expected an object")
        found = content.pop("version", 1)
        if found != self.version:
            raise Damaged(f"{path} is of version {typed.shown(found)}; this release reads {self.version}")
        try:
            return typed.read(self.kind, content, str(path))
        except typed.TypedError as error:
            raise Damaged(str(error)) from error

    def read_or_none(self, path: Path) -> T | None:
        """What the file says; None where there is none or a damaged one, which a start mends and says."""
        try:
            return self.read(path)
        except Damaged:
            return None

    def write(self, path: Path, value: T) -> None:
        """Replace the file, as `write_atomic`."""
        content = {"version": self.version, **asdict(value)}  # type: ignore[call-overload]
        write_atomic(path, json.dumps(content, indent=1) + "\n")
