"""Kinds of values that settings have."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator

from interaction.users import make_user

OPEN = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""For a section of verl's: strict about what is named here, silent about the rest."""

MOST = 2**32 - 1
"""No count, number of tokens or seed is larger; numpy takes no larger seed."""

LONGEST_WAIT = 1e6
"""Seconds, eleven days; what waits on a pipe overflows at twice as many, and on a thread at 1e10."""

Whole = Annotated[int, Field(ge=1, le=MOST)]
Natural = Annotated[int, Field(ge=0, le=MOST)]
NaturalOrAll = Annotated[int, Field(ge=-1, le=MOST)]
"""-1: verl's word for all, none, or never."""
Share = Annotated[float, Field(ge=0, le=1)]
PartAbove0 = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_WAIT)]
NotNegative = Annotated[float, Field(ge=0)]

FILES_OF_A_RUN = (".json", ".html", ".txt", ".yaml", ".lock", ".part", ".aside")
FOLDERS_OF_A_RUN = ("logs", "aside")


def printable(text: str) -> str:
    """A text on one line that can be written to any file."""
    if not text.strip() or not all(letter.isprintable() for letter in text):
        raise ValueError("a text on one line, not empty, without control characters")
    return text


def short(text: str) -> str:
    """A name, or the like."""
    if len(text) > 200:
        raise ValueError("a text of at most 200 characters")
    return printable(text)


def path(text: str) -> str:
    """What can be the path of a file or folder, whatever the configuration does with it."""
    printable(text)
    if "${" in text:
        raise ValueError("a path without ${, which would be read as a reference to another setting")
    if any(len(part.encode()) > 255 for part in text.split("/")) or len(text.encode()) > 4000:
        raise ValueError("a path whose names have at most 255 bytes, and 4000 together")
    return text


def written_path(text: str) -> str:
    """The path of a folder that is made where it is missing."""
    if text.startswith("~"):
        raise ValueError("a path from / or from the project's folder; ~ would become a folder of that name")
    return path(text)


def folder_name(text: str) -> str:
    """The name of a stage's or a run's folder: one name, none of those that a run gives to something else."""
    if not re.fullmatch(r"\w[\w.-]{0,99}", text):
        raise ValueError("the name of a folder: letters, digits, _, - and ., up to 100, the first a letter or digit")
    if text.lower() in FOLDERS_OF_A_RUN or text.lower().endswith(FILES_OF_A_RUN):
        raise ValueError("another name: a run keeps something else under this one")
    return text


def run_name(text: str) -> str:
    """A folder below outputs/."""
    written_path(text)
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("the name of a folder below outputs/; paths.run=... sets one elsewhere")
    return text


def one_or_more(value: Any) -> Any:
    """A name, or a list of names."""
    for name in value if isinstance(value, list) and value else [value]:
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise ValueError("a name or a list of names")
    return value


def none_or_more(value: Any) -> Any:
    """None, a name, or a list of names."""
    return value if value is None else one_or_more(value)


def number_or_text(value: Any) -> Any:
    """A number above 0, or a text that verl takes apart."""
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int | float)
        or (not isinstance(value, str) and value <= 0)
    ):
        raise ValueError("a number above 0, such as 2.0, or several as verl joins them, such as 0.5_5.0")
    return value if not isinstance(value, str) else printable(value)


def every(value: Any) -> Any:
    """How often the warm start saves or validates."""
    if value != "after_each_epoch" and (
        isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MOST
    ):
        raise ValueError("a number of steps, -1 for never, or after_each_epoch")
    return value


def resume_mode(value: Any) -> Any:
    """A mode of verl's; `recipe.stage.starts.check_mode` says why one of them does not work here."""
    if value not in ("auto", "disable", "resume_path"):
        raise ValueError("auto (go on from the last checkpoint) or disable (start over)")
    return value


def scalar(value: Any) -> Any:
    """What an environment variable can be set to."""
    if not isinstance(value, str | int | float | bool) or "\0" in str(value):
        raise ValueError("a text or a number")
    return value


def variable(name: str) -> str:
    """The name of an environment variable."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("the name of an environment variable")
    return name


def precision(value: Any) -> Any:
    """verl's PrecisionType."""
    if value not in PRECISIONS or isinstance(value, bool | float):
        raise ValueError(f"one of {', '.join(map(str, PRECISIONS))}")
    return value


PRECISIONS = ("fp32", "float32", 32, "32", "bf16", "bfloat16", "fp16", "float16", 16, "16")


def played_user(settings: dict[str, Any] | None) -> dict[str, Any] | None:
    """Settings of somebody who plays the user."""
    make_user(settings)
    return settings


Text = Annotated[str, AfterValidator(short)]
ReadPath = Annotated[str, AfterValidator(path)]
WrittenPath = Annotated[str, AfterValidator(written_path)]
FolderName = Annotated[str, AfterValidator(folder_name)]
PlayedUser = Annotated[dict[str, Any] | None, AfterValidator(played_user)]
Names = Annotated[Any, PlainValidator(one_or_more)]
NamesOrNone = Annotated[Any, PlainValidator(none_or_more)]
Variable = Annotated[str, AfterValidator(variable)]
Precision = Annotated[Any, PlainValidator(precision)]
Threshold = Annotated[Any, PlainValidator(number_or_text)]
Every = Annotated[Any, PlainValidator(every)]
Scalar = Annotated[Any, PlainValidator(scalar)]
RunName = Annotated[str, AfterValidator(run_name)]
