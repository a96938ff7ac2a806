"""python -m recipe.report RUN_DIR [RUN_DIR ...]"""

import argparse
from pathlib import Path

from recipe.report import held_out, page, tables


def main() -> None:
    """Entry point of `python -m recipe.report`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.report",
        description="Table and HTML page of one run, or of several seeds of one; the page is written into the first.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="a folder such as outputs/default")
    runs = parser.parse_args().runs
    for run in runs:
        begun = any((run / name).exists() for name in ("manifest.json", "curriculum.json"))
        if not begun and not tables.trained_stages(run):
            parser.error(f"{run} is no run: it has neither a manifest.json nor training metrics; give outputs/default")
    try:
        path = page.write(runs[0], tuple(runs[1:]))
    except OSError as error:  # a full disk, a folder that cannot be read or written
        parser.exit(1, f"the report cannot be written: {error}\n")
    print(tables.table(runs))
    if moved := held_out.table(runs):
        print(f"\n{moved}")
    print(f"\nreport  {path}")


if __name__ == "__main__":
    main()
