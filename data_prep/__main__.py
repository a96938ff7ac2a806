"""Writes the parquet files of all stages, and a manifest that says how they came to be."""

import logging
import os
import sys
import time

from data_prep.arguments import parse
from data_prep.steptool import command as steptool


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and builds; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments, __doc__)
    if options.steptool is not None:
        return steptool.run(options)
    if options.tau2_data is not None:
        os.environ["TAU2_DATA_DIR"] = options.tau2_data

    try:
        from data_prep.build import Options, build
        from interaction.contract import ContractError
    except ModuleNotFoundError as error:
        return _fail(f"the package {error.name!r} is missing; install the project's requirements first")
    logging.getLogger("interaction").addHandler(logging.NullHandler())  # what fails is told below, in one line
    began = time.perf_counter()
    given = vars(options) | {"options": dict(options.option), "mixture": dict(options.mixture)}
    try:
        manifest = build(options.out, Options(**{name: given[name] for name in Options.__dataclass_fields__}))
    except OSError as error:
        return _fail(f"cannot write to {options.out}: {error}; choose another folder with --out")
    except ContractError as error:
        return _fail(f"{error}. docs/your_tools.md has what is expected")
    except UnicodeEncodeError as error:
        piece = ascii(error.object[max(error.start - 30, 0) : error.start + 30])
        return _fail(f"{options.environment}: the text {piece} has half of a surrogate pair; expected text in UTF-8")
    except (RuntimeError, ValueError) as error:
        return _fail(str(error))
    for name, entry in manifest["files"].items():
        print(f"{entry['rows']:>5} rows  {options.out / name}")
    for name, reason in manifest.get("left_out", {}).items():
        print(f"left out, since no message of {options.protocol} can do it: {name} ({reason})")
    for name in (name for name, entry in manifest["files"].items() if not entry["rows"]):
        parts = " (no task is of dev or test)" * name.endswith("_val.parquet")
        print(f"NOTE {options.out / name} is empty: no task belongs there{parts}")
    print(f"written in {time.perf_counter() - began:.1f} s; {options.out / 'manifest.json'} says how")
    return 0


def _fail(message: str) -> int:
    print(f"data_prep: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
