"""Finds the installed `bfcl-eval`, checks that it is the pinned one, and reads its data files and classes.

Only data files are opened and only the eight class modules are imported: other modules of that package create
folders when imported, or pull in every vendor SDK. The hash over the data files is pinned because a silent
change of tasks or gold calls would make two runs incomparable (older releases differ in about 70 of 200 tasks).
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType

VERSION = "2026.3.23"
DATA_SHA256 = "b346c5c138c3c70e7386fdd52fb08cd267ccbc436fe7fc3f62389fcbd202b9d9"
"""SHA-256 over name and content of every file of `read_data`, in its order."""

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")

CLASS_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Class name to the stem of both its module and its function docs."""

INSTALL = f"python -m pip install --no-deps bfcl-eval=={VERSION} && python -m pip install mpmath"


class SourceError(RuntimeError):
    """bfcl-eval is missing, or is not the release that this environment was checked against."""


@cache
def read_data() -> dict[str, bytes]:
    """Content of every data file of the multi-turn tasks, checked against the pinned version and hash.

    Raises:
        SourceError: as `read_pinned`.
    """
    questions = [f"BFCL_v4_{category}.json" for category in CATEGORIES]
    answers = [f"possible_answer/{name}" for name in questions]
    return read_pinned((*questions, *answers, *map(_docs, CLASS_MODULES.values())), DATA_SHA256)


def _docs(stem: str) -> str:
    return f"multi_turn_func_doc/{stem}.json"


def read_pinned(names: tuple[str, ...], sha256: str) -> dict[str, bytes]:
    """Content of these files of bfcl-eval's data folder, checked against the pinned version and hash.

    Raises:
        SourceError: bfcl-eval is not installed, or differs; the message says what to install.
    """
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"The package bfcl-eval is not installed; version {VERSION} is needed. Run: {INSTALL}")
    try:
        version = importlib.metadata.version("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    root = Path(next(iter(spec.submodule_search_locations))) / "data"
    try:
        contents = {name: (root / name).read_bytes() for name in names}
    except OSError as error:
        raise SourceError(
            f"bfcl-eval {version} has no readable {error.filename}; version {VERSION} is needed. Run: {INSTALL}"
        ) from error
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    found = digest.hexdigest()
    if version != VERSION or found != sha256:
        raise SourceError(
            f"bfcl-eval {version} with data {found[:12]} is installed in {root.parent}, but {VERSION} with data "
            f"{sha256[:12]} is needed: tasks and gold calls differ between releases. Run: {INSTALL}"
        )
    return contents


def read_rows(name: str) -> list[dict]:
    """The rows of one data file (JSON lines, in spite of the suffix)."""
    return [json.loads(line) for line in lines_of(read_data()[name])]


def lines_of(content: bytes) -> list[str]:
    """The rows of a data file as text."""
    return [line for line in content.decode("utf-8").split("\n") if line.strip()]  # a row may hold U+2028


@cache
def function_docs() -> dict[str, dict[str, dict]]:
    """Class name to function name to its doc (name, description, parameters), in the order of the files.

    The `response` schemas are dropped: they are a third of the text, and a model sees real results anyway.
    Shared and cached: treat as read-only.
    """
    return {
        class_name: {
            row["name"]: {key: row[key] for key in ("name", "description", "parameters")}
            for row in read_rows(_docs(stem))
        }
        for class_name, stem in CLASS_MODULES.items()
    }


@cache
def function_owners() -> dict[str, str]:
    """Function name to the name of its class; the 128 names are unique over all classes."""
    return {name: class_name for class_name, docs in function_docs().items() for name in docs}


@cache
def load_class(class_name: str) -> type:
    """One of the eight executable classes."""
    return getattr(_load_module(CLASS_MODULES[class_name]), class_name)


@cache
def load_padding() -> ModuleType:
    """The module with the constants that the classes pad long-context states and answers with."""
    return _load_module("long_context")


def _load_module(stem: str) -> ModuleType:
    read_data()  # The version check comes before the first import of the package's code.
    return importlib.import_module(f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{stem}")
