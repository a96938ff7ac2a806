"""State files: what one start writes and a later one reads.

Every such file is one kind of frozen dataclass as JSON. It is replaced whole, so that a kill leaves the old text or
the new one; it carries a version, so that a file of another release is known as such; and a damaged one is a `Damaged`
that says so, never a traceback: whoever reads it says whether it can be made anew (`set_aside`) or what to do.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from recipe import typed
from recipe.errors import PreflightError

T = TypeVar("T")

LARGEST = 64 * 2**20
"""Bytes of a file that is read whole, unless its reader says otherwise."""


LONGEST_LINE = 2**26
"""Bytes of a line of JSON; the longest episode of long_context has a hundredth of that."""


class Damaged(ValueError):
    """A file that is there and cannot be used. The message is one line that names it and says what is wrong with it."""


def require_file(path: Path, largest: int | None = None) -> None:
    """A plain file, or a link to one: a pipe would be waited for, and one of many gigabytes would fill the memory.

    Args:
        largest: bytes that it may have; None for any number.

    Raises:
        FileNotFoundError: there is nothing of that name.
        Damaged: it is something else, cannot be reached, or is larger.
    """
    try:
        state = path.stat()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if not stat.S_ISREG(state.st_mode):
        raise Damaged(f"{path} cannot be read: it is a {'folder' if stat.S_ISDIR(state.st_mode) else 'pipe or device'}")
    if largest is not None and state.st_size > largest:
        raise Damaged(f"{path} cannot be read: it has {state.st_size} bytes; expected at most {largest}")


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The text of a UTF-8 file.

    Raises:
        FileNotFoundError: there is nothing of that name.
        Damaged: it is no plain file, too large, or no UTF-8.
    """
    require_file(path, largest)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


def read_json(path: Path, largest: int = LARGEST, made: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    """What a JSON file holds.

    Args:
        largest: bytes that it may have.
        made: what becomes of an object, of which it gets names and values: a name may stand there twice.

    Raises:
        FileNotFoundError: there is nothing of that name.
        Damaged: it is no plain file, too large, no UTF-8, no JSON, or nested too deeply.
    """
    text = read_text(path, largest)
    try:
        return json.loads(text, object_pairs_hook=made)
    except RecursionError as error:
        raise Damaged(f"{path} cannot be read: it is nested too deeply") from error
    except ValueError as error:  # no JSON, or a number of thousands of digits
        raise Damaged(f"{path} cannot be read: {error}") from error


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


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Where each line of a file begins, and the line; the last one may lack its end. One over `LONGEST_LINE` comes in
    parts, so that a file of any content is read with little memory. What is no plain file has no lines."""
    try:
        require_file(path)
    except (FileNotFoundError, Damaged):
        return
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
    earlier: Callable[[Any], Any] = lambda content: content
    """Makes of the content that an earlier release wrote what `kind` has; leaves any other as it is."""

    def read(self, path: Path) -> T | None:
        """What the file says; None where there is none.

        Raises:
            Damaged: it is empty, cut off, no UTF-8, no JSON, of another version, or lacks or has what it should not.
        """
        try:
            content = self.earlier(read_json(path))
        except FileNotFoundError:
            return None
        if not isinstance(content, dict):
            raise Damaged(f"{path} holds {typed.shown(content)}; expected an object")
        found = content.pop("version", 1)
        if found != self.version:
            raise Damaged(f"{path} is of version {typed.shown(found)}; this release reads {self.version}")
        try:
            return typed.read(self.kind, content, str(path))
        except PreflightError as error:
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
