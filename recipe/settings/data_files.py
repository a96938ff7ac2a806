"""The data files that a configuration names, and the command that makes them."""

import re
from pathlib import Path
from shlex import quote
from typing import Any

from omegaconf import DictConfig, OmegaConf

from data_prep.laptop import FILES
from interaction.environment import DEFAULT, ENVIRONMENTS, NAME, Part, known, load_tasks

MADE = re.compile(r"(.+)_(?:train|val|sft)\.parquet")
"""What data_prep calls the files of an environment."""

MIXTURE = "mixture"
"""What it calls those of several."""

LAPTOP = "--laptop"
"""What the data of the CPU profile's model go by, which are of several environments too: no environment's name."""

BFCL = ("bfcl", "tiny", "sft")
"""What BFCL's own names begin with (`bfcl_env/data_files.py`)."""

LONGEST = 100
"""Characters of an environment's name that a message repeats."""

SMALL = ("bfcl", "tau")
"""Environments that have a small data set for the tiny policy."""


def data_command(config: DictConfig, environment: str = DEFAULT) -> str:
    """The command that makes the data of an environment, or of a mixture; for the chosen hardware profile.

    An environment's file is `FILE` where the configuration does not say it; what a mixture holds it never says.
    """
    command, out = ".venv/bin/python -m data_prep", f"--out {config.paths.data}"
    if environment == LAPTOP or (environment == DEFAULT and _is_laptop(config)):
        return f"{command} {out} {LAPTOP}"
    tiny = " --tiny" if config.paths.get("tiny_policy") and environment in SMALL else ""
    if environment == DEFAULT:
        return f"{command} {out}{tiny}"
    if environment == MIXTURE:
        return f"{command} --mixture NAME=WEIGHT ... {out}"
    file = environment if environment in ENVIRONMENTS else _own(config).get(environment)
    return f"{command} --environment {'FILE' if file is None else quote(str(file))} {out}{tiny}"


def naming(config: DictConfig, environment: str) -> str | None:
    """What to set so that an environment of a user's is known, which rows name; None where it cannot have that name."""
    if not NAME.fullmatch(environment) or len(environment) > LONGEST:
        return None
    other = next((name for name, file in _own(config).items() if Path(str(file)).stem == environment), None)
    set_so = f"+interaction.environments.{environment}="
    set_so += "FILE" if other is None else quote(_for_hydra(str(_own(config)[other])))
    if other is None:
        return f"Name the file that its data were made from: {set_so} (docs/your_environment.md, docs/your_data.md)."
    return f"An environment is known by its file's name: set {set_so} in place of interaction.environments.{other}."


def _for_hydra(text: str) -> str:
    """A value as a command line's override has it."""
    plain = re.fullmatch(r"[\w./-]+", text)
    return text if plain else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def without_tasks(environment: str, parts: tuple[Part, ...]) -> str | None:
    """That an environment has no task of these parts, so that its data, made again, would have none either."""
    if environment not in known() or any(task.part in parts for task in load_tasks(environment).values()):
        return None
    return (
        f"No task of environment {environment} has the part {' or '.join(parts)}: give some of its tasks one "
        "(`Task.part`, docs/your_environment.md) or, where they are entries of a file, add entries to it "
        "(docs/your_data.md), and make the data again"
    )


def environment_of(config: DictConfig, file: str) -> str:
    """Whose data a file has by its name. Only its rows can say it of a name that data_prep does not give.

    The warm start does not say which environments there are, so any name but BFCL's is that of one.
    """
    if _is_laptop(config) and Path(file).name in FILES:
        return LAPTOP
    found = MADE.fullmatch(Path(file).name)
    if found is None or found[1] in BFCL:
        return DEFAULT
    named = found[1] == MIXTURE or found[1] in ENVIRONMENTS or found[1] in _own(config)
    return found[1] if named or "interaction" not in config else DEFAULT


def _is_laptop(config: DictConfig) -> bool:
    """Whether the profile is that of a CPU with a model that is not the tiny policy."""
    return config.trainer.device == "cpu" and not config.paths.get("tiny_policy")


def _own(config: DictConfig) -> Any:
    return OmegaConf.select(config, "interaction.environments") or {}


def as_list(files: Any) -> list[str]:
    """Names of data files, which may be one or several; none for null."""
    if files is None:
        return []
    return [str(name) for name in files] if OmegaConf.is_list(files) else [str(files)]
