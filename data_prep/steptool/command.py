"""`python -m data_prep --steptool FILE`: its arguments, and what it says. Imports nothing that takes time."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

SHOWN = 20
"""Mistakes that are printed; the manifest has all that were left out."""

OWN = ("max_context", "max_response", "tokenizer", "skip_bad")
SHARED = ("steptool", "out")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `--steptool`, apart from the folder."""
    group = parser.add_argument_group("data of StepTool's", "one file, in place of an environment's tasks")
    group.add_argument("--steptool", type=Path, metavar="FILE", help="SFT JSON, or step CSV; docs/offline.md has both")
    for name, what in (("--max-context", "a row"), ("--max-response", "a message of the model")):
        text = f"most tokens of {what}; whole steps are dropped from the end (default: no limit)"
        group.add_argument(name, type=int, metavar="N", help=text)
    group.add_argument("--tokenizer", metavar="MODEL", help="a model's folder or hub id, whose tokens count")
    group.add_argument("--skip-bad", action="store_true", help="leave out rows that are wrong, and list them")


def check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the process with a message for an argument that is out of range, missing, or does nothing here."""
    changed = [name for name, value in vars(given).items() if value != parser.get_default(name)]
    if given.steptool is None:
        idle, reason = [name for name in changed if name in OWN], "without"
    else:
        idle, reason = [name for name in changed if name not in (*OWN, *SHARED)], "with"
    if idle:
        parser.error(f"{_option(idle[0])} does nothing {reason} --steptool; leave it out")
    limits = {name: getattr(given, name) for name in ("max_context", "max_response")}
    limits = {name: value for name, value in limits.items() if value is not None}
    for name, value in limits.items():
        if value < 1:
            parser.error(f"{_option(name)} is {value}; give 1 or more, or leave it out for no limit")
    if bool(limits) != (given.tokenizer is not None):
        parser.error("--max-context and --max-response count tokens of --tokenizer: give a limit and a tokenizer")


def run(given: argparse.Namespace) -> int:
    """Converts the file; returns the exit status."""
    try:
        from data_prep.steptool.convert import convert
        from data_prep.steptool.lengths import Limits
        from data_prep.steptool.mistakes import BadFile, Mistakes
    except ModuleNotFoundError as error:
        return _fail(f"the package {error.name!r} is missing; install the project's requirements first")
    began = time.perf_counter()
    try:
        limits = Limits(given.max_context, given.max_response, given.tokenizer)
        manifest = convert(given.steptool, given.out, limits, given.skip_bad)
    except BadFile as error:
        return _fail(f"{given.steptool} {error}")
    except Mistakes as error:
        for mistake in error.found[:SHOWN]:
            print(f"data_prep: {given.steptool}, {mistake}", file=sys.stderr)
        more = f", the first {SHOWN} above" if len(error.found) > SHOWN else ""
        return _fail(f"{error}{more}. Nothing was written; mend them, or leave these rows out with --skip-bad")
    except OSError as error:
        return _fail(f"cannot write to {given.out}: {error}; choose another folder with --out")
    except ValueError as error:
        return _fail(str(error))
    _tell(given, manifest)
    print(f"written in {time.perf_counter() - began:.1f} s; {given.out / 'manifest.json'} says how")
    return 0


def _tell(given: argparse.Namespace, manifest: dict[str, Any]) -> None:
    for name, entry in manifest["files"].items():
        print(f"{entry['rows']:>5} rows of {manifest['source']['rows']}  {given.out / name}")
    for mistake in manifest["left_out"][:SHOWN]:
        print(f"left out: {mistake}")
    if (more := len(manifest["left_out"]) - SHOWN) > 0:
        print(f"left out: {more} more, which the manifest lists")
    if given.tokenizer is not None:
        print(
            f"too long: {len(manifest['too_long'])} rows left out, {manifest['shortened']} shortened by "
            f"{manifest['steps_dropped']} steps"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _fail(message: str) -> int:
    print(f"data_prep: {message}", file=sys.stderr)
    return 1
