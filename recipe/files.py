"""State files: what one start writes and a later one reads.

Every such file is one kind of frozen dataclass as JSON. It is replaced whole, so that a kill leaves the old text or
the new one; it carries a version, so that a file of another release is known as such; and a damaged one is a `Damaged`
that says so, never a traceback: whoever reads it says whether it can be made anew (`set_aside`) or what to do.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from recipe import typed

T = TypeVar("T")


LONGEST_LINE = 2**26
"""Bytes of a line of JSON; the longest episode of long_context has a hundredth of that."""


class Damaged(ValueError):
    """A state file that is there and cannot be used. The message names it and says what is wrong with it."""


def write_atomic(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a start after a kill or a power cut, sees the old text or the new one.

    Raises:
        OSError, UnicodeEncodeError: it cannot be written; what stood there before still does.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def set_aside(path: Path) -> Path:
    """Rename a file or folder that must not be used and must not be lost; returns its new path beside the old one."""
    number, aside = 1, path.with_name(f"{path.name}.aside")
    while aside.exists() or aside.is_symlink():
        number += 1
        aside = path.with_name(f"{path.name}.aside{number}")
    return path.rename(aside)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Where each line of a file begins, and the line; the last one may lack its end. One over `LONGEST_LINE` comes in
    parts, so that a file of any content is read with little memory."""
    offset = 0
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield offset, line
            offset += len(line)


@dataclass(frozen=True)
class StateFile(Generic[T]):
    """One kind of state file."""

    kind: type[T]
    """A frozen dataclass with `__pydantic_config__ = typed.STRICT`."""
    version: int = 1
    """A file without one is of version 1."""

    def read(self, path: Path) -> T | None:
        """What the file says; None where there is none.

        Raises:
            Damaged: it is empty, cut off, no UTF-8, no JSON, of another version, or lacks or has what it should not.
        """
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
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

    def write(self, path: Path, value: T) -> None:
        """Replace the file, as `write_atomic`."""
        content = {"version": self.version, **asdict(value)}  # type: ignore[call-overload]
        write_atomic(path, json.dumps(content, indent=1) + "\n")
