"""Train with the command line of train_fctncalling.py: its 14 flags, as settings of this recipe.

    python -m recipe.fctncalling --dataset_path FILE --model_name_or_path MODEL [flags] [Hydra overrides]

Prints the commands that it stands for, then runs them; with --dry-run it only prints. The data of a JSON file is made
first, into the run's folder. Learning curves and report are found under
./results/<experiment>/<model>/<data set>/<algorithm>, which has links to the run's own. docs/fctncalling.md says what
becomes of each flag. Overrides come last and win: trainer.total_epochs=3.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from omegaconf import DictConfig

from data_prep.build import build
from recipe import processes, report
from recipe.errors import PreflightError
from recipe.fctncalling.flags import parse
from recipe.fctncalling.mapping import CONFIGURATION, names, overrides, preparation
from recipe.fctncalling.results import RESULTS, link
from recipe.files import told
from recipe.preflight import checks
from recipe.report import tables
from recipe.settings import compose
from recipe.stage import checkpoints
from recipe.stage.begin import writing
from recipe.stage.console import Tail


def commands(given: argparse.Namespace, config: DictConfig, said: Sequence[str]) -> str:
    """What stands for the command line, to be read and copied."""
    lines = []
    if (made := preparation(given, config)) is not None:
        out, options = made
        parts = ["python", "-m", "data_prep", "--environment", options.environment, "--out", str(out)]
        lines.append(shlex.join([*parts, "--protocol", options.protocol, "--docs", options.docs_style]))
    train = " \\\n    ".join(map(shlex.quote, said))
    return "\n".join([*lines, f"python -m recipe.train --config-name {CONFIGURATION} \\\n    {train}"])


def train(given: argparse.Namespace, config: DictConfig, said: Sequence[str]) -> int:
    """Runs the commands; returns the exit status.

    Raises:
        OSError, RuntimeError, ValueError: the data cannot be made, or the results not be written.
    """
    command = [sys.executable, "-m", "recipe.train", "--config-name", CONFIGURATION, *said]
    run, results = Path(config.paths.run), RESULTS / names(given)
    log = run / "logs" / f"{config.stage.name}_{time.strftime('%Y%m%d-%H%M%S')}.log"
    tail = Tail(log)

    def look() -> None:
        tail.echo()
        with suppress(OSError):  # no reason to end a training; said at the end
            link(results, config)

    try:
        with writing(config), processes.alone(run) as note:
            if (made := preparation(given, config)) is not None:
                build(*made)
            if config.preflight_only:
                return subprocess.call(command)
            try:
                status = processes.run(command, log, look, note)
            finally:
                tail.echo()
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", flush=True)
        status = 130
    if tables.trained_stages(run):
        report.write(run)
        print(report.table([run]))
        link(results, config)
        print(f"\nresults       {results}\ntensorboard   .venv/bin/tensorboard --logdir {results}")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m recipe.fctncalling`; returns the exit status."""
    given = parse(sys.argv[1:] if arguments is None else arguments, __doc__)
    try:
        said = overrides(given)
        config = compose(CONFIGURATION, said)
        print(commands(given, config, said), flush=True)
        if given.dry_run:
            return 0
        checks.check_settings(config)
        checkpoints.check(config)
        return train(given, config, said)
    except (PreflightError, RuntimeError, ValueError) as error:
        print(f"\n{CONFIGURATION} cannot start: {error}", file=sys.stderr)
    except OSError as error:
        print(f"\n{CONFIGURATION}: {told(error)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
