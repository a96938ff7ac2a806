"""A set of curricula that differ in one thing each, run one after another, and one table of how they end.

    runs:
      curriculum:                       # folder <run>/curriculum
      no_augmentation:
        overrides: [interaction.train.environments.bfcl.augment=false]
      single_stage:
        stages: [{name: stage3, overrides: [trainer.total_epochs=32]}]

A run without `stages` has those of recipe/config/curriculum.yaml. All start from the same model and take the overrides
of the command line. A run that fails does not stop the others.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from recipe.curriculum import runner, stages
from recipe.curriculum.stages import Stage
from recipe.files import aligned
from recipe.settings import quoted
from recipe.stage import choosing, starts
from recipe.stage.metrics_log import read_steps

RUN_KEYS = ("stages", "overrides")
WINDOW = 5
"""Last training steps that a number is the mean of."""

TRAINED = {"critic/score/mean": "reward", "train/progress": "progress", "train/acc": "acc"}
HELD_OUT = ("progress", "acc", "acc_official")
CATEGORY = re.compile(r"^(?:val-core|val-aux)/(?:bfcl/)?(.+)/(acc|progress)/mean@\d+$")
REPORTED_CATEGORY = re.compile(rf"^{choosing.TEST}bfcl/(.+)/(acc|progress)$")


def main(name: str, arguments: list[str]) -> None:
    """Run the set that `name` states and print its table.

    Raises:
        SystemExit: with status 1 if a run failed, after all have been tried; at once for a file that cannot work.
    """
    path = stages.find(name, "ablations")
    runs = stages.read_yaml(path, ("runs",)).get("runs") or {}
    if not isinstance(runs, dict) or not runs:
        sys.exit(f"{path}: expected `runs`, a mapping of names to curricula.")
    default = stages.read_yaml(stages.find("curriculum"), RUN_KEYS)
    for run, content in runs.items():
        stages.check_folder(str(run), f"{path}: the run")
        if not isinstance(content or {}, dict) or set(content or {}) - set(RUN_KEYS):
            sys.exit(f"{path}, run {run}: expected the keys {', '.join(RUN_KEYS)}.")
    listed = stages.read_stages({**default, **(next(iter(runs.values())) or {})}, path, arguments)
    base = listed[0].composed.paths.run
    planned: dict[str, tuple[Path, list[Stage]]] = {}
    for run, content in runs.items():  # all are read before the first starts: a mistake in the last shows now
        own = [*arguments, f"paths.run={quoted(f'{base}/{run}')}"]
        listed = stages.read_stages({**default, **(content or {})}, path, own)
        planned[run] = Path(listed[0].composed.paths.run), listed
    failed, model = {}, os.environ.get("MODEL")
    for number, (run, (folder, listed)) in enumerate(planned.items(), 1):
        print(f"\n== {run} ({number} of {len(planned)}), in {folder}", flush=True)
        if model is not None:
            os.environ["MODEL"] = model  # a curriculum takes it away after its first stage
        try:
            runner.run_stages(folder, path.stem, listed)
        except runner.StageFailed as failure:
            failed[run] = str(failure)
            print(failure, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            every = (stage.composed for _, listed in planned.values() for stage in listed)
            same = f"The same command{starts.going_on(*every)}"
            sys.exit(f"\ninterrupted; nothing is left running. {same} goes on with the first unfinished run.")
    if not any(stage.composed.preflight_only for _, listed in planned.values() for stage in listed):
        text = table(planned)
        (Path(base) / f"{path.stem}.txt").write_text(text + "\n", encoding="utf-8")
        print(f"\n{text}\n\ntable   {Path(base) / f'{path.stem}.txt'}")
    if failed:
        sys.exit(f"{len(failed)} of {len(planned)} runs failed: {', '.join(failed)}; their messages are above.")


def table(runs: Mapping[str, tuple[Path, Sequence[Stage]]]) -> str:
    """How the last stage of each run ended: means of its last training steps, then its last validation.

    Training numbers are of the tasks, the reward and the hints that the run trained with, and compare only where these
    are the same; the held-out ones compare. If validation has decided anything in one of the runs, they are those of
    the test tasks in all of them.
    """
    decided = [item for folder, _ in runs.values() if folder.is_dir() for item in choosing.of_run(folder)]
    apart = decided and choosing.all_by_dev_part(decided)
    prefix, category = (choosing.TEST, REPORTED_CATEGORY) if apart else ("val/", CATEGORY)
    rows, categories = [], []
    for name, (folder, listed) in runs.items():
        steps = [read_steps(folder / stage.folder) for stage in listed]
        last = next((found for found in reversed(steps) if found), {})
        row = {"run": name, "steps": str(sum(max(found, default=0) for found in steps))}
        for metric, label in TRAINED.items():
            values = [numbers[metric] for numbers in last.values() if metric in numbers][-WINDOW:]
            row[f"train {label}"] = f"{fmean(values):.3f}" if values else "-"
        validations = [numbers for numbers in last.values() if any(name.startswith("val") for name in numbers)]
        validated = validations[-1] if validations else {}
        for label in HELD_OUT:
            row[f"val {label}"] = f"{validated[prefix + label]:.3f}" if prefix + label in validated else "-"
        rows.append(row)
        found = {match.groups(): value for metric, value in validated.items() if (match := category.match(metric))}
        names = sorted({category for category, _ in found})
        cells = {name: [found.get((name, metric), float("nan")) for metric in ("progress", "acc")] for name in names}
        categories.append(
            {"run": name} | {key: f"{first:.3f} / {second:.3f}" for key, (first, second) in cells.items()}
        )
    text = _text(rows)
    if any(len(row) > 1 for row in categories):
        text += f"\n\nvalidation by category, progress / acc\n{_text(categories)}"
    return f"{text}\n\n{choosing.sentence(decided)}".rstrip()


def _text(rows: Sequence[Mapping[str, str]]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return aligned([columns, *([row.get(column, "-") for column in columns] for row in rows)])
