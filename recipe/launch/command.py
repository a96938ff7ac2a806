"""What stands behind `python -m recipe.train`: the name of a configuration, overrides, options of Hydra's.

An option that only shows something (`--help`, `--cfg job`) is answered by Hydra itself, once the line is known to be
right. All else is composed by `recipe.launch.compose`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig

from recipe.errors import PreflightError
from recipe.launch.compose import BAD, CONFIG_DIR, compose, launch_overrides, line_of

NOT_HERE = {"--multirun", "-m", "--config-path", "-cp"}
"""Options of Hydra's that would start something else than one stage."""


def read(
    arguments: Sequence[str], name: str = "stage1", group: str = "hardware"
) -> tuple[DictConfig, list[str]] | None:
    """The configuration of a command line, and its overrides; None where Hydra has shown what was asked for.

    Args:
        name: the configuration, where `--config-name` gives none.
        group: that of the hardware profiles.

    Raises:
        PreflightError: it cannot be composed.
    """
    known, rest = _parse(arguments, name)
    options = [argument for argument in rest if argument.startswith("-")]
    # what follows an option may be its value, as in `--cfg job`
    overrides = [argument for argument in rest if argument not in options and (not options or "=" in argument)]
    if refused := NOT_HERE & {option.split("=")[0] for option in options}:
        raise PreflightError(f"{refused.pop()} is Hydra's, and not for this command. Start it once for each run.")
    config = compose(known.config_name, overrides, group=group, folder=known.config_dir)
    if not options:
        return config, overrides
    _show(arguments, name, group)
    return None


def name_of(arguments: Sequence[str], name: str = "stage1") -> str:
    """The configuration that a command line names."""
    return str(_parse(arguments, name)[0].config_name)


def _parse(arguments: Sequence[str], name: str) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn", default=name)
    parser.add_argument("--config-dir", "-cd", type=Path)
    return parser.parse_known_args(arguments)


def _show(arguments: Sequence[str], name: str, group: str) -> None:
    given = [i for i, argument in enumerate(arguments, 1) if "=" in argument and not argument.startswith("-")]
    end = given[-1] if given else len(arguments)  # argparse wants overrides side by side, also before `--cfg job`
    sys.argv[1:] = [*arguments[:end], *launch_overrides(arguments, group), *arguments[end:]]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra itself prints a traceback
    try:
        hydra.main(version_base=None, config_path=str(CONFIG_DIR), config_name=name)(_never)()
    except BAD as error:
        raise PreflightError(line_of(error)) from error


def _never(_: DictConfig) -> None:
    """Hydra shows something instead of calling this."""
