"""Run a curriculum, or a set of ablations, and report.

    python -m recipe.curriculum [options] [overrides]

An override is one of Hydra's, for every stage, or for one: `stage2:trainer.total_epochs=3`. Starting the same command
again after an interruption goes on where it stopped. docs/train.md has a run from start to end.
"""

import argparse
import sys
import time
from pathlib import Path

from recipe.curriculum import ablations, runner, stages
from recipe.files import told
from recipe.report import page, tables, validation
from recipe.stage import console, starts

CURRICULUM_KEYS = ("stages", "overrides")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; options and overrides may be mixed."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.curriculum", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--curriculum", default="curriculum", metavar="FILE_OR_NAME", help="default: recipe/config/curriculum.yaml"
    )
    parser.add_argument("--stages", default="", metavar="NAME,NAME", help="only these stages of it")
    parser.add_argument("--ablations", metavar="FILE_OR_NAME", help="a set of runs instead, and a table of them")
    parser.add_argument("overrides", nargs="*", metavar="override", help="[STAGE:]key=value")
    return parser.parse_intermixed_args(arguments)


def main(arguments: list[str]) -> None:
    """Entry point of `python -m recipe.curriculum`."""
    began, options = time.time(), parse(arguments)
    if options.ablations:
        return ablations.main(options.ablations, options.overrides)
    path = stages.find(options.curriculum)
    chosen = [name for name in options.stages.split(",") if name]
    listed = stages.read_stages(stages.read_yaml(path, CURRICULUM_KEYS), path, options.overrides, chosen)
    run = Path(listed[0].composed.paths.run)
    try:
        runner.run_stages(run, path.stem, listed)
    except OSError as error:
        sys.exit(f"{told(error)}. {starts.WRITABLE}")
    except KeyboardInterrupt:
        same = f"The same command{starts.going_on(*(stage.composed for stage in listed))}"
        sys.exit(f"\ninterrupted; nothing is left running. {same} goes on with the first unfinished stage.")
    if any(stage.composed.preflight_only for stage in listed):
        return
    path = page.write(run)
    print("\n\n".join(filter(None, [tables.table([run]), validation.table([run])])))
    print(f"\nreport        {path}\ntensorboard   .venv/bin/tensorboard --logdir {run}")
    print(f"total         {console.duration(time.time() - began)}")


if __name__ == "__main__":
    main(sys.argv[1:])
