"""Writes the parquet files of all stages, and a manifest that says how they came to be."""

import logging
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from data_prep.arguments import STEPTOOL, parse

SHOWN = 20
"""Wrong rows that are printed; the manifest has all that were left out."""


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and builds; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments, __doc__)
    began = time.perf_counter()
    try:
        made = _build(options) if options.steptool is None else _convert(options)
    except OSError as error:
        return _fail(f"cannot write to {options.out}: {error}; choose another folder with --out")
    except UnicodeEncodeError as error:
        piece = ascii(error.object[max(error.start - 30, 0) : error.start + 30])
        return _fail(f"{options.environment}: the text {piece} has half of a surrogate pair; expected text in UTF-8")
    except (RuntimeError, ValueError) as error:
        for mistake in getattr(error, "mistakes", ())[:SHOWN]:
            _fail(f"{options.steptool}, {mistake}")
        return _fail(str(error))
    for name, entry in made["files"].items():
        print(f"{entry['rows']:>5} rows  {options.out / name}")
        if not entry["rows"]:
            parts = " (no task is of dev or test)" * name.endswith("_val.parquet")
            print(f"NOTE {options.out / name} is empty: no task belongs there{parts}")
    print(f"written in {time.perf_counter() - began:.1f} s; {options.out / 'manifest.json'} says how")
    return 0


def _build(options: Namespace) -> Mapping[str, Any]:
    from data_prep.build import Options, build
    from interaction.contract import ContractError

    logging.getLogger("interaction").addHandler(logging.NullHandler())  # what fails is told by `main`, in one line
    given = vars(options) | {"options": dict(options.option), "mixture": dict(options.mixture)}
    try:
        made = build(options.out, Options(**{name: given[name] for name in Options.__dataclass_fields__}))
    except ContractError as error:
        raise ValueError(f"{error}. docs/your_tools.md has what is expected") from error
    for name, reason in made.get("left_out", {}).items():
        print(f"left out, since no message of {options.protocol} can do it: {name} ({reason})")
    return made


def _convert(options: Namespace) -> Mapping[str, Any]:
    from data_prep.steptool.convert import convert

    made = convert(options.steptool, options.out, **{name: getattr(options, name) for name in STEPTOOL})
    for mistake in made["left_out"][:SHOWN]:
        print(f"left out: {mistake}")
    print(
        f"{len(made['left_out'])} mistakes left out, {len(made['too_long'])} rows too long, {made['shortened']} rows "
        f"shortened by {made['steps_dropped']} steps"
    )
    return made


def _fail(message: str) -> int:
    print(f"data_prep: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
