"""What every start of a stage does before it trains: its environment, its notes, and one line where it cannot write."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pprint import pprint
from typing import Any

from omegaconf import DictConfig

from interaction.masked import masked, masked_text
from recipe import loopback
from recipe.files import told
from recipe.stage import manifest, starts
from recipe.stage.export import ExportError

WRITABLE = "Set paths.run or RUN to a folder that can be written to and has room."


def gate_advice(*configs: DictConfig) -> str:
    """What to do after a gate that was not passed, in a command that runs these stages."""
    return (
        f"The same command{starts.going_on(*configs)} with more epochs (trainer.total_epochs) trains on from there, "
        "with a lower stage.gate.value or stage.gate=null it goes on to the next stage."
    )


def tracker_folders(stage: Path) -> dict[str, str]:
    """Variables that keep what trackers write in the stage's folder, where a person has not set another place.

    By themselves wandb and TensorBoard write into the working directory, Trackio into the home directory, and verl has
    MLflow write to one file in /tmp that all users of a machine share.
    """
    return {
        "TENSORBOARD_DIR": str(stage / "tensorboard"),
        "WANDB_DIR": str(stage),  # it makes a folder `wandb` there
        "TRACKIO_DIR": str(stage / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{stage / 'mlflow.db'}",
    }


def set_environment(config: DictConfig, nodes: int) -> None:
    """Environment of this process and of every worker Ray starts: the profile's variables and where metrics go."""
    for name, value in {**config.launcher.env, **loopback.environment(nodes)}.items():
        os.environ.setdefault(name, str(value))
    stage = Path(config.paths.stage).absolute()
    for name, place in tracker_folders(stage).items():
        os.environ.setdefault(name, place)
    # verl truncates this file when it starts, so every launch gets its own; readers let the last name win, and a clock
    # may have gone back
    now, folder = time.strftime("%Y%m%d-%H%M%S"), stage / "metrics"
    last = max((path.stem for path in folder.glob("*.jsonl")), default="")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / f"{now if now > last else f'{last}_'}.jsonl")


def mask_prints(module: Any) -> None:
    """Have verl's module print, and its trackers get, a configuration without keys."""
    from verl.utils.tracking import Tracking

    begin = Tracking.__init__
    Tracking.__init__ = lambda self, *names, config=None, **given: begin(self, *names, config=masked(config), **given)
    module.pprint = lambda value: pprint(masked(value))
    module.print = lambda value: print(masked_text(str(value)), flush=True)


@contextmanager
def writing(config: DictConfig) -> Iterator[None]:
    """Ends the process with one line where the run's folder cannot be written, or has no room."""
    try:
        yield
    except (OSError, ExportError) as error:
        text = f"{told(error)}. {WRITABLE}" if isinstance(error, OSError) else error
        sys.exit(f"\n{config.stage.name} cannot start: {text}")


def say(lines: list[str]) -> None:
    """Print what was done to go on from an earlier start; the console shows such lines."""
    for line in lines:
        print(f"RESUME {line}", flush=True)


def write_start(config: DictConfig, overrides: Sequence[str]) -> None:
    """Note what this start begins with, its configuration too, and make the folder of its metrics. After all checks.

    Raises:
        OSError: the stage's folder cannot be written.
    """
    starts.note(config)
    manifest.write_config(config, overrides)
    Path(os.environ["VERL_FILE_LOGGER_PATH"]).parent.mkdir(parents=True, exist_ok=True)
