"""State files, JSON lines and values from outside: what one start writes and a later one reads.

A state file is one frozen dataclass (`StateFile`) as JSON. It is replaced whole, so a kill leaves the old text or the
new one. The dataclass says what may stand in it: types, `Literal` for one of several, `Annotated[int, Field(ge=1)]` for
a range. Reading is strict (`Strict`): `"5"` is no number.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from interaction.masked import masked_text

T = TypeVar("T")
LONGEST_LINE = 2**26
"""Bytes of a line of JSON; the longest episode of long_context has a hundredth of that."""


class PreflightError(ValueError):
    """A setting, a file or a machine with which a start cannot work. Its text holds no key."""

    def __init__(self, text: object) -> None:
        super().__init__(masked_text(str(text)))


class Damaged(ValueError):
    """A file that is there and cannot be used. The message is one line with its name and the fault."""


class Strict:
    """The base of each dataclass that is read here: values of its very types, and no others."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], values: Any, where: str) -> T:
    """The dataclass `kind` with `values`, which are plain containers.

    Args:
        where: the beginning of a setting's name (`stage.gate`), or a file's path.

    Raises:
        PreflightError: a value has the wrong type or range, is unknown or missing.
    """
    try:
        found: T = _adapter(kind).validate_json(json.dumps(values, default=repr))  # type: ignore[arg-type]
        return found
    except ValidationError as error:
        raise PreflightError("; ".join(_line(fault, where) for fault in error.errors()[:3])) from error


def _line(fault: Any, where: str) -> str:
    name = ".".join([where, *(shown(part, quote=False) for part in fault["loc"])])
    if fault["type"] == "unexpected_keyword_argument":
        return f"{name} is not known"
    if fault["type"] in ("missing", "missing_argument"):
        return f"{name} is missing"
    expected = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{name}={shown(fault['input'])}; expected {expected}"


def shown(value: Any, quote: bool = True) -> str:
    """A value in a message: on one line of at most 80 characters, whatever it is."""
    try:
        return one_line(repr(value) if quote or not str(value).strip() else value, 80)
    except Exception:  # another's `__repr__`, a number of more digits than Python prints, a nest too deep
        return f"a value of type {type(value).__name__} that cannot be printed"


def one_line(error: object, longest: int = 200) -> str:
    """What an error says, on one line of at most `longest` characters, whatever stands in it."""
    words = " ".join(masked_text(str(error)).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in words)
    return text if len(text) <= longest else f"{text[:longest]}..."


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as columns, two blanks between them; all rows have as many cells as the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(text.rstrip() for text in texts)


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        FileNotFoundError: there is none.
        Damaged: it cannot be read, is no UTF-8 or no JSON, or is nested too deeply.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


def write_atomic(path: Path, text: str) -> None:
    """Replace a file so that a reader, or a start after a kill or a power cut, sees the old text or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def free(path: Path) -> Path:
    """The path, or the first of `path.2`, `path.3`, ... at which nothing is."""
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return found


def set_aside(path: Path) -> Path:
    """Rename a file or folder that must not be used and must not be lost; returns its new path beside the old one."""
    return path.rename(free(path.with_name(f"{path.name}.aside")))


class StateFile(Strict):
    """The base of a frozen dataclass that is a state file."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What the file says; None where there is none. Raises Damaged where it cannot be read as this dataclass."""
        try:
            return read(cls, read_json(path), str(path))
        except FileNotFoundError:
            return None
        except PreflightError as error:
            raise Damaged(str(error)) from error

    @classmethod
    def read_or_none(cls, path: Path) -> Self | None:
        """What the file says; None where there is none or a damaged one."""
        with suppress(Damaged):
            return cls.read(path)
        return None

    def write(self, path: Path) -> None:
        """Replace the file, as `write_atomic`."""
        write_atomic(path, json.dumps(asdict(self), indent=1) + "\n")  # type: ignore[call-overload]


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Where each line of a file begins, and the line, which may lack its end; a very long one comes in parts."""
    offset = 0
    if path.is_file():
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                yield offset, line
                offset += len(line)


class Appended:
    """A file of JSON lines that one process at a time appends to, locked for as long as this lives; to be closed.

    A kill, a power cut or a full disk costs the line that was being written and no other: the next start cuts it off.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise
        self._file.truncate(max((begin + len(line) for begin, line in lines(path) if line.endswith(b"\n")), default=0))

    def close(self) -> None:
        """Twice is fine."""
        self._file.close()

    def add(self, line: dict[str, Any]) -> None:
        """Append one line; where the disk takes it not (OSError), the file ends as before."""
        left = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(end)
            raise


def check_manifest(path: Path) -> None:
    """A file of data is the one that the manifest beside it describes, where there is one that names it.

    Raises:
        Damaged: it is another one.
    """
    try:
        written = json.loads(path.with_name("manifest.json").read_text())["files"][path.name]["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != written:
        raise Damaged(f"{path} is not the file that manifest.json beside it describes")
