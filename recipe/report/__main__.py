"""python -m recipe.report RUN_DIR [RUN_DIR ...]
python -m recipe.report --compare PATH [PATH ...] [--baseline ROW | --with PATH [PATH ...]] [--out DIR]"""

import argparse
from itertools import combinations
from pathlib import Path

from recipe.evaluation.store import EPISODES
from recipe.files import PreflightError, aligned
from recipe.report import page, sources, tables, validation
from recipe.report.pass_rate import Comparison
from recipe.stage.metrics_log import read_steps

OUT = Path("outputs") / "pass_rate"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m recipe.report",
        description="Table and HTML page of one run, or of several seeds of one; the page is written into the first. "
        "With --compare evaluations, runs and votes of a judge beside one another (docs/evaluation.md).",
    )
    add = parser.add_argument
    add("runs", nargs="*", type=Path, metavar="RUN_DIR", help="a folder such as outputs/default")
    compared = "evaluations and runs, files of votes and folders of them: a table with a row for each"
    add("--compare", action="extend", nargs="+", type=Path, default=[], metavar="PATH", help=compared)
    of_compare = parser.add_mutually_exclusive_group().add_argument
    of_compare("--baseline", metavar="ROW", help="with --compare: compare with this row (default: the first)")
    of_compare("--with", dest="b", nargs="+", type=Path, metavar="PATH", help="seeds of recipe B; of A: --compare")
    add("--out", type=Path, default=OUT, metavar="DIR", help="with --compare: for page and CSV (default: %(default)s)")
    given = parser.parse_args()
    try:
        if given.compare:
            paths = [*given.compare, *given.runs]
            _require_seeds([*paths, *given.b] if given.b else [])
            methods = sources.recipes(paths, given.b) if given.b else sources.methods(paths)
            rows = {method.name: method for method in methods}
            if given.baseline not in (None, *rows):
                parser.error(f"--baseline {given.baseline}: there is no such row; there are {', '.join(rows)}")
            found = Comparison(methods, rows.get(given.baseline, methods[0]))
            written = found.write(given.out)
            print(f"{found.text()}\n\nwritten  {', '.join(map(str, written))}")
        elif given.runs and not (given.b or given.baseline):
            _report(given.runs)
        else:
            parser.error("give runs such as outputs/default, or --compare PATH")
    except (PreflightError, OSError) as error:
        parser.exit(1, f"{error}\n")


def _report(runs: list[Path]) -> None:
    for run in runs:
        begun = any((run / name).exists() for name in ("manifest.json", "curriculum.json", EPISODES))
        if not begun and not tables.stage_dirs(run):
            raise PreflightError(f"{run} is no run and no evaluation: it has no manifest.json, metrics or {EPISODES}")
    _require_seeds(runs)
    path = page.write(runs[0], tuple(runs[1:]))
    texts = [aligned(rows) for rows in map(tables.loss_rows, runs) if rows]
    if tables.trained_stages(runs[0]) or not (texts or (runs[0] / EPISODES).exists()):
        texts.append(tables.table(runs))
    print("\n\n".join(filter(None, [*texts, validation.table(runs), f"report  {path}"])))


def _require_seeds(paths: list[Path]) -> None:
    for one, other in combinations(paths, 2):
        for stage in tables.trained_stages(one):
            if read_steps(stage) == read_steps(other / stage.name):
                raise PreflightError(f"{other / stage.name} has the very steps of {stage}: a copy is no second seed")


if __name__ == "__main__":
    main()
