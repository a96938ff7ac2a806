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
    tiny, whose = config.paths.get("tiny_policy"), ""
    if environment == MIXTURE:
        whose = " --mixture NAME=WEIGHT ..."
    elif environment not in (DEFAULT, LAPTOP):
        own = (OmegaConf.select(config, "interaction.environments") or {}).get(environment, "FILE")
        whose = f" --environment {environment if environment in ENVIRONMENTS else quote(str(own))}"
    laptop = environment == LAPTOP or (environment == DEFAULT and config.trainer.device == "cpu" and not tiny)
    size = f" {LAPTOP}" if laptop else " --tiny" if tiny and environment in ("bfcl", "tau") else ""
    return f".venv/bin/python -m data_prep{whose} --out {config.paths.data}{size}"


def environment_of(config: DictConfig, file: str) -> str:
    """Whose data a file has by its name, as data_prep gives it; by any other name BFCL's.

    The warm start does not say which environments there are, so any name but BFCL's is that of one.
    """
    from data_prep.laptop import FILES  # here, because it imports much

    if config.trainer.device == "cpu" and not config.paths.get("tiny_policy") and Path(file).name in FILES:
        return LAPTOP
    found = re.fullmatch(r"(.+)_(?:train|val|sft)\.parquet", Path(file).name)
    if found is None or found[1] in ("bfcl", "tiny", "sft"):
        return DEFAULT
    own = OmegaConf.select(config, "interaction.environments") or {}
    return found[1] if found[1] in (MIXTURE, *ENVIRONMENTS, *own) or "interaction" not in config else DEFAULT
