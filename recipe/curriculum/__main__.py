"""Run a curriculum, or a set of ablations, and report.

    python -m recipe.curriculum [options] [overrides]

An override is one of Hydra's, for every stage, or for one: `stage2:trainer.total_epochs=3`. Starting the same command
again after an interruption goes on where it stopped. docs/train.md has a run from start to end.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from recipe.curriculum import runner, stages
from recipe.curriculum.stages import Name, Plan, Stage
from recipe.files import PreflightError, Strict
from recipe.report import page, sources, tables, validation
from recipe.report.pass_rate import Comparison
from recipe.settings import quoted
from recipe.stage import console, starts


@dataclass(frozen=True)
class Ablations(Strict):
    """A file of curricula that differ in one thing each; one without `stages` has those of curriculum.yaml.

    runs:
      curriculum:                       # folder <run>/curriculum
      no_augmentation:
        overrides: [interaction.train.environments.bfcl.augment=false]
      single_stage:
        stages: [{name: stage3, overrides: [trainer.total_epochs=32]}]
    """

    runs: dict[Name, Plan | None]


def main(arguments: list[str]) -> None:
    form, default = argparse.RawDescriptionHelpFormatter, "default: recipe/config/curriculum.yaml"
    parser = argparse.ArgumentParser(prog="python -m recipe.curriculum", description=__doc__, formatter_class=form)
    parser.add_argument("--curriculum", default="curriculum", metavar="FILE_OR_NAME", help=default)
    parser.add_argument("--stages", default="", metavar="NAME,NAME", help="only these stages of it")
    parser.add_argument("--ablations", metavar="FILE_OR_NAME", help="a set of runs instead, and a table of them")
    parser.add_argument("overrides", nargs="*", metavar="override", help="[STAGE:]key=value")
    began, options = time.time(), parser.parse_intermixed_args(arguments)
    if options.ablations:
        if options.stages:
            parser.error("--ablations names the stages of each of its runs; leave out --stages")
        return ablations(stages.find(options.ablations, "ablations"), options.overrides)
    path = stages.find(options.curriculum)
    chosen = [name for name in options.stages.split(",") if name]
    listed = stages.read_stages(stages.read_yaml(Plan, path), path, options.overrides, chosen)
    _run(listed, listed)
    print(f"total         {console.duration(time.time() - began)}")


def _run(listed: list[Stage], every: Iterable[Stage]) -> None:
    """Run a curriculum, and report it; `every` has the stages of the whole command."""
    run = Path(listed[0].composed.paths.run)
    try:
        runner.run_stages(run, listed)
    except OSError as error:
        sys.exit(f"{error}. {starts.WRITABLE}")
    except KeyboardInterrupt:
        same = f"The same command{starts.going_on(*(stage.composed for stage in every))}"
        sys.exit(f"\ninterrupted; nothing is left running. {same} goes on with the first unfinished stage.")
    if not any(stage.composed.preflight_only for stage in listed):
        path = page.write(run)
        print("\n\n".join(filter(None, [tables.table([run]), validation.table([run])])))
        print(f"\nreport        {path}\ntensorboard   .venv/bin/tensorboard --logdir {run}")


def ablations(path: Path, arguments: list[str]) -> None:
    """Run a set of curricula, each in a folder of its own, and compare their validations with the first one's.

    All start from the same model and take the overrides of the command line. A run that fails does not stop the others.

    Raises:
        SystemExit: with status 1 if a run failed, after all have been tried; at once for a file that cannot work.
    """
    default = stages.read_yaml(Plan, stages.find("curriculum"))
    plans = {
        name: Plan(plan.stages or default.stages, plan.overrides or default.overrides) if plan else default
        for name, plan in stages.read_yaml(Ablations, path).runs.items()
    }
    base = stages.read_stages(next(iter(plans.values())), path, arguments)[0].composed.paths.run
    planned = {  # all are read before the first starts: a mistake in the last shows now
        name: stages.read_stages(plan, path, [*arguments, f"paths.run={quoted(f'{base}/{name}')}"])
        for name, plan in plans.items()
    }
    failed, model, every = [], os.environ.get("MODEL"), [stage for listed in planned.values() for stage in listed]
    for number, (name, listed) in enumerate(planned.items(), 1):
        print(f"\n== {name} ({number} of {len(planned)}), in {base}/{name}", flush=True)
        if model is not None:
            os.environ["MODEL"] = model  # a curriculum takes it away after its first stage
        try:
            _run(listed, every)
        except runner.StageFailed as failure:
            failed.append(name)
            print(failure, file=sys.stderr, flush=True)
    if not any(stage.composed.preflight_only for stage in every):
        try:
            rows = sources.methods([Path(base) / name for name in planned])
            found = Comparison(rows, rows[0])
            print(f"\n{found.text()}\n\nwritten  {', '.join(map(str, found.write(Path(base))))}")
        except PreflightError as error:
            print(f"\nno table of held-out tasks: {error}")
    if failed:
        sys.exit(f"{len(failed)} of {len(planned)} runs failed: {', '.join(failed)}; their messages are above.")


if __name__ == "__main__":
    main(sys.argv[1:])
