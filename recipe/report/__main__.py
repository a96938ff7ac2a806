"""python -m recipe.report RUN_DIR [RUN_DIR ...]
python -m recipe.report --compare PATH [PATH ...] [--baseline ROW] [--out DIR]
python -m recipe.report --index DIR"""

import argparse
from itertools import combinations
from pathlib import Path

from recipe.files import told
from recipe.report import held_out, index, losses, page, pass_rate_page, sources, tables
from recipe.stage.metrics_log import read_steps

OUT = Path("outputs") / "pass_rate"


def main() -> None:
    """Entry point of `python -m recipe.report`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.report",
        description="Table and HTML page of one run, or of several seeds of one; the page is written into the first. "
        "With --compare evaluations, runs and votes of a judge beside one another (docs/evaluation.md), with --index a "
        "page that lists all runs of a folder.",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIR", help="a folder such as outputs/default")
    parser.add_argument(
        "--compare",
        "--votes",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="evaluations and runs, files of votes and folders of them: a table with a row for each",
    )
    parser.add_argument("--baseline", metavar="ROW", help="with --compare: compare with this row (default: the first)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"with --compare: for page and CSV (default: {OUT})")
    parser.add_argument("--index", type=Path, metavar="DIR", help="list the runs of a folder in DIR/index.html")
    given = parser.parse_args()
    if given.index is not None:
        if given.runs or given.compare or given.baseline is not None or given.out is not None:
            parser.error("--index lists all runs of one folder, such as outputs, and takes nothing else")
        return _index(parser, given.index)
    if given.compare:
        return _pass_rates(parser, [*given.compare, *given.runs], given.baseline, given.out or OUT)
    if given.baseline is not None or given.out is not None:
        parser.error("--baseline and --out belong to --compare")
    if not given.runs:
        parser.error("give a run such as outputs/default, --index outputs, or --compare PATH")
    _runs(parser, given.runs)


def _runs(parser: argparse.ArgumentParser, runs: list[Path]) -> None:
    for run in runs:
        if not index.is_run(run):
            parser.error(f"{run} is no run: it has neither a manifest.json nor training metrics; give outputs/default")
    for one, other in combinations(runs, 2):
        for stage in tables.trained_stages(one):
            if read_steps(stage) == read_steps(other / stage.name):
                parser.error(f"{other / stage.name} has the very steps of {stage}, and a copy is no second seed")
    try:
        path = page.write(runs[0], tuple(runs[1:]))
    except OSError as error:  # a full disk, a folder that cannot be read or written
        parser.exit(1, f"the report cannot be written: {error}\n")
    warm = [text for text in map(losses.loss_table, runs) if text]
    print("\n\n".join([*warm, *([tables.table(runs)] if tables.trained_stages(runs[0]) or not warm else [])]))
    if moved := held_out.table(runs):
        print(f"\n{moved}")
    print(f"\nreport  {path}")


def _index(parser: argparse.ArgumentParser, folder: Path) -> None:
    try:
        path, count = index.write(folder)
    except OSError as error:  # no such folder, or one that cannot be read or written
        parser.exit(1, f"the index cannot be written: {told(error)}\n")
    if not count:
        parser.exit(1, f"{folder} holds no run; give a folder of runs, such as outputs\n")
    print(f"index  {path}, {count} run{'' if count == 1 else 's'}")


def _pass_rates(parser: argparse.ArgumentParser, paths: list[Path], baseline: str | None, out: Path) -> None:
    try:
        methods = sources.methods(paths)
    except sources.SourceError as error:
        parser.exit(1, f"{error}\n")
    except OSError as error:  # a folder or file that is another's
        parser.exit(1, f"what is to be compared cannot be read: {told(error)}\n")
    names = [method.name for method in methods]
    if baseline is not None and baseline not in names:
        parser.error(f"--baseline {baseline}: there is no such row; there are {', '.join(names)}")
    against = methods[0 if baseline is None else names.index(baseline)]
    try:
        written = pass_rate_page.write(methods, against, out)
    except OSError as error:
        parser.exit(1, f"the table cannot be written: {told(error)}; choose another --out\n")
    print(pass_rate_page.text(methods, against))
    print(f"\nwritten  {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
