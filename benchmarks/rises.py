"""Several seeds of `run_all.sh`, and the table of docs/data/rises.md that they give.

    python -m benchmarks.rises run NAME --seeds 1-5 [ARGUMENT ...]    # one run a seed, with these arguments
    python -m benchmarks.rises above NAME CONTROL --seeds 1-5         # how far each run ended above outputs/CONTROLseed
    python -m benchmarks.rises table NAME                             # the table, from the results
    python -m benchmarks.rises curve NAME                             # docs/NAME.png: held-out tasks over steps

Each run leaves `docs/data/rises/NAME_SEED.json`: commit, command, date and the difference of each stage, with each
task's cluster and values. From these files alone the table is made, which replaces what is behind `<!-- rises NAME -->`
in docs/data/rises.md. A run is refused while files differ from the commit.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from recipe.evaluation.intervals import brackets
from recipe.report import validation
from recipe.report.figures import COLORS
from recipe.report.tables import Difference, Rise, Task, compare, stage_rows, trained_stages
from recipe.stage.metrics_log import read_steps
from recipe.stage.starts import BEFORE

RESULTS, PAGE = Path("docs/data/rises"), Path("docs/data/rises.md")
WORDS = {"plain_words": "words of the warm start", "other_words": "words of GRPO", "unseen_words": "unseen words"}
OF = {"all": "acc", "all, official": "acc_official"}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def measure(name: str, seed: int, arguments: list[str]) -> None:
    """Run one seed to its end and write its result; a run that has begun goes on."""
    if changed := git("status", "--porcelain", "--", ":!docs"):
        raise SystemExit(f"commit first, or the result would name a commit that it does not come from:\n{changed}")
    run, began = f"{name}{seed}", datetime.now(UTC)
    profile = [f"HARDWARE={os.environ['HARDWARE']}"] if "HARDWARE" in os.environ else []
    subprocess.run(["bash", "run_all.sh", *arguments], check=True, env={**os.environ, "RUN": run, "SEED": str(seed)})
    result = {
        "commit": git("rev-parse", "HEAD"),
        "command": shlex.join([*profile, f"RUN={run}", f"SEED={seed}", "bash", "run_all.sh", *arguments]),
        "date": f"{began:%Y-%m-%d}",
        **found_in(Path("outputs") / run),
    }
    path = RESULTS / f"{name}_{seed}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


def found_in(folder: Path) -> dict[str, Any]:
    """What a run's result says of its figures: differences of its stages, and the shares of all its validations."""
    both = [(row["stage"], of, row[of]) for row in stage_rows([folder]) for of in ("reward", "progress") if row[of]]
    found = [(stage, of, rise.runs[0]) for stage, of, rise in both if rise.runs[0].tasks]  # where tasks came again
    titles, held = validation.rows([folder])
    found += [
        (titles[-1], f"held-out {OF.get(row, row)}, since {begin}", moved.runs[0])
        for row, _, since in held
        for begin, moved in since.items()
        if begin != BEFORE
    ]
    return {
        "steps": {stage.name: max(read_steps(stage)) for stage in trained_stages(folder)},
        "held_out": {row: dict(zip(titles, (share for share, _ in shares), strict=True)) for row, shares, _ in held},
        "rows": [as_row(stage, of, difference) for stage, of, difference in found],
    }


def above(name: str, control: str, seed: int) -> None:
    """Add to a seed's result how far its last validation is above that of the control, task by task.

    A control is a model of supervised training alone, validated once by a first stage with `trainer.val_only=true`.
    """
    path = RESULTS / f"{name}_{seed}.json"
    result = json.loads(path.read_text())
    (played,) = Path("outputs", f"{control}{seed}").glob("*/rollouts/val/*.jsonl")
    first = {f"held-out {OF.get(row, row)}": tasks for row, tasks in validation.by_row(played).items()}
    kept = [row for row in result["rows"] if not row["of"].endswith(f", above {control}")]
    rows = []
    for row in kept:
        of, since, _ = row["of"].partition(", since ")
        tasks = {tuple(map(str, task)): values for task, values in first.get(of, {}).items()}
        last = {name: (task.cluster, [task.last]) for name, task in from_row(row).tasks.items()}
        if since and not of.endswith((", called", ", surplus")) and (moved := compare(tasks, last)):
            rows.append(as_row(row["stage"], f"{of}, above {control}", moved))
    path.write_text(json.dumps({**result, "rows": [*kept, *rows]}, indent=1) + "\n")


def as_row(stage: str, of: str, difference: Difference) -> dict[str, Any]:
    """A difference as JSON; `tasks` has a line of text for each task: its name, cluster, and two values."""
    tasks = [
        "\t".join(["/".join(map(str, name)), "/".join(task.cluster), f"{task.first:.6g}", f"{task.last:.6g}"])
        for name, task in difference.tasks.items()
    ]
    row = {"stage": stage, "of": of, "first": difference.first, "last": difference.last, "missing": difference.missing}
    return {**row, "all_tasks": difference.all_tasks, "tasks": tasks}


def from_row(row: dict[str, Any]) -> Difference:
    lines = [line.split("\t") for line in row["tasks"]]
    parts = [(*(tuple(text.split("/")) for text in line[:2]), *map(float, line[2:])) for line in lines]
    tasks = {name: Task(cluster, first, last) for name, cluster, first, last in parts}
    return Difference(row["first"], row["last"], tasks, row["missing"], row["all_tasks"])


def table(name: str) -> str:
    """The results of a name as Markdown: a row for each stage and metric, and where they come from."""
    paths = sorted(RESULTS.glob(f"{name}_*.json"), key=lambda path: (len(path.name), path.name))  # by seed
    results = [json.loads(path.read_text()) for path in paths]
    rows: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for result in results:
        for row in result["rows"]:
            rows[row["stage"], row["of"]].append(from_row(row))
    sure = " [95 %]" * any(row["tasks"] for result in results for row in result["rows"])
    several = {"stage": len({stage for stage, _ in rows}) > 1, "each run": len(results) > 1}
    cells = [["stage", "of", "before -> after", f"mean difference{sure}", "each run"]]
    for (stage, of), runs in rows.items():
        rise = Rise(tuple(runs), of_shares=of != "reward")
        moved = f"{rise.difference:+.3f}{brackets(rise.interval)}"
        cells.append([stage, of.removeprefix("held-out "), rise.windows, moved, ", ".join(map(str, runs))])
    shown = [place for place, name in enumerate(cells[0]) if several.get(name, True)]
    lines = ["| " + " | ".join(row[place] for place in shown) + " |" for row in cells]
    lines.insert(1, ("| " + "--- | " * len(shown)).strip())
    return "\n".join([*lines, "", *sources(results)])


def curve(name: str) -> None:
    """Draw the shares of generated test tasks that are solved: a line a seed for each set of words."""
    figure, axis = pyplot.subplots(figsize=(6.4, 3.2))
    for number, path in enumerate(sorted(RESULTS.glob(f"{name}_*.json"))):
        result = json.loads(path.read_text())
        ends = dict(zip(result["steps"], accumulate(result["steps"].values()), strict=True))
        for color, (words, title) in zip(COLORS, WORDS.items(), strict=False):
            points = [(ends.get(at, 0), share) for at, share in result["held_out"][words].items() if at != BEFORE]
            axis.plot(*zip(*points, strict=True), color=color, marker=".", lw=1.3, label=title if number == 0 else None)
    axis.legend(frameon=False)
    axis.set(xlabel="steps of GRPO", ylabel="held-out tasks solved", ylim=(0, 0.8))
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(f"docs/{name}.png", dpi=150, bbox_inches="tight")


def sources(results: list[dict[str, Any]]) -> list[str]:
    """A line for each command: its commit and date."""
    return [f"- `{result['command']}`, {result['date']}, commit {result['commit'][:7]}" for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "above", "table", "curve"))
    parser.add_argument("name")
    parser.add_argument("--seeds", default="1-5", metavar="FIRST-LAST")
    given, arguments = parser.parse_known_args()
    if given.what in ("run", "above"):
        first, last = map(int, given.seeds.split("-"))
        for seed in range(first, last + 1):
            measure(given.name, seed, arguments) if given.what == "run" else above(given.name, *arguments, seed)
    elif given.what == "curve":
        curve(given.name)
    else:
        mark = rf"(?s)(<!-- rises {given.name} -->\n).*?(\n<!-- end -->)"
        text, count = re.subn(mark, lambda found: f"{found[1]}{table(given.name)}{found[2]}", PAGE.read_text())
        if not count:
            raise SystemExit(f"{PAGE} has no <!-- rises {given.name} --> ... <!-- end -->")
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
