"""The command that makes a data file, for messages about one that is missing or does not fit."""

import re
from pathlib import Path
from shlex import quote

from omegaconf import DictConfig, OmegaConf

from interaction.environment import DEFAULT, ENVIRONMENTS

MIXTURE = "mixture"
"""What the files of several environments are called."""

LAPTOP = "--laptop"
"""Stands for the data of the CPU profile's model, which are of several environments too."""


def data_command(config: DictConfig, environment: str = DEFAULT) -> str:
    """The command that makes the data of an environment, or of a mixture, for the chosen hardware profile."""
    command, tiny = f".venv/bin/python -m data_prep --out {config.paths.data}", config.paths.get("tiny_policy")
    if environment == LAPTOP or (environment == DEFAULT and config.trainer.device == "cpu" and not tiny):
        return f"{command} {LAPTOP}"
    if environment == MIXTURE:
        return f"{command} --mixture NAME=WEIGHT ..."
    if environment != DEFAULT:
        own = OmegaConf.select(config, f"interaction.environments.{environment}") or "FILE"
        command += f" --environment {environment if environment in ENVIRONMENTS else quote(str(own))}"
    return f"{command} --tiny" if tiny and environment in ("bfcl", "tau") else command


def environment_of(config: DictConfig, file: str) -> str:
    """Whose data a file has by its name, as data_prep gives it; by any other name BFCL's."""
    from data_prep.laptop import FILES  # here, because it imports much

    if config.trainer.device == "cpu" and not config.paths.get("tiny_policy") and Path(file).name in FILES:
        return LAPTOP
    found = re.fullmatch(r"(.+)_(?:train|val|sft)\.parquet", Path(file).name)
    own = OmegaConf.select(config, "interaction.environments") or {}
    return found[1] if found and found[1] in (MIXTURE, *ENVIRONMENTS, *own) else DEFAULT
