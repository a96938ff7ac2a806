"""A whole configuration, read: every section that has a type against it, and every reference resolved."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recipe import typed
from recipe.errors import PreflightError
from recipe.settings import ours, verl
from recipe.settings.renamed import all_renamed

TRAINING: Mapping[str, type] = {
    "stage": ours.Stage,
    "paths": ours.Paths,
    "environment": ours.Environment,
    "interaction": ours.Interaction,
    "offline": ours.Offline,
    "launcher": ours.Launcher,
    "data": verl.Data,
    "actor_rollout_ref": verl.ActorRolloutRef,
    "critic": verl.Critic,
    "algorithm": verl.Algorithm,
    "algorithm.credit": ours.Credit,
    "reward": verl.Reward,
    "trainer": verl.Trainer,
}
"""Sections of a stage's configuration."""

WARM_START: Mapping[str, type] = {
    "paths": ours.Paths,
    "stage": ours.SftStage,
    "launcher": ours.SftLauncher,
    "data": verl.SftData,
    "model": verl.Model,
    "engine": verl.Engine,
    "optim": verl.Optimizer,
    "checkpoint": verl.Checkpoint,
    "trainer": verl.SftTrainer,
}
"""Sections of the warm start's."""

UNUSED = ("reward.reward_model.",)
"""Beginnings of keys that verl leaves open and nothing here uses."""


def check_values(config: DictConfig, sections: Mapping[str, type] = TRAINING) -> None:
    """Each setting has the type and the range that it must have.

    Raises:
        PreflightError: at the first section in which one has not; one line.
    """
    _check_texts(OmegaConf.to_container(config))  # first as they were given: by references they stand in several places
    values = resolved(config)
    _check_texts(values)
    if (line := next(all_renamed(values), None)) is not None:
        raise PreflightError(line)
    if sections is TRAINING and not isinstance(values.get("preflight_only"), bool):
        raise PreflightError(f"preflight_only={typed.shown(values.get('preflight_only'))}; expected true or false.")
    for where, kind in sections.items():
        section: Any = values
        for part in where.split("."):
            section = section.get(part) if isinstance(section, dict) else None
        if section is None:
            raise PreflightError(f"{where} is missing. Leave out what takes it away.")
        try:
            typed.read(kind, section, where)
        except typed.TypedError as error:
            raise PreflightError(f"{error}.") from error


def _check_texts(values: Any) -> None:
    for key, text in texts(values):
        if text == "???" and not key.startswith(UNUSED):
            raise PreflightError(f"{typed.shown(key, quote=False)} is missing: it has no value of its own. Set it.")
        if "\0" in text or not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise PreflightError(f"{typed.shown(key, quote=False)}={typed.shown(text)}; expected a text in UTF-8.")


def resolved(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain containers, every `${...}` replaced.

    Raises:
        PreflightError: one of them cannot be.
    """
    try:
        values: Any = OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        raise PreflightError(reference_line(error)) from error
    return values


def reference_line(error: Exception) -> str:
    """One line on a `${...}` that has no value."""
    key = getattr(error, "full_key", None)
    message = (str(error).splitlines() or [type(error).__name__])[0]
    where = f"{typed.shown(key, quote=False)} has no value" if key else "a setting has no value"
    return f"{where}: {typed.one_line(message)}. Set it to a value, or to a reference to a setting that is there."


def texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a container, names of settings included, with the setting that it is of."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, dict):
        for name, value in node.items():
            below = f"{key}.{name}" if key else str(name)
            yield below, str(name)
            yield from texts(value, below)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from texts(value, f"{key}.{number}")


def check_environment() -> None:
    """The environment variables that configurations read hold what they may; an empty RUN is as good as none.

    Raises:
        PreflightError: one does not.
    """
    if os.environ.get("RUN") == "":
        del os.environ["RUN"]
    names = ("TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "SEED", "MODEL", "RUN")
    given: dict[str, Any] = {name: os.environ[name] for name in names if name in os.environ}
    for name in names[:3]:
        if given.get(name, "").strip().isdecimal() and len(given[name]) < 20:
            given[name] = int(given[name])
    try:
        typed.read(ours.FromEnvironment, given, "variable")
    except typed.TypedError as error:
        text = str(error).replace("variable.", "the environment variable ")
        raise PreflightError(f"{text}. Set it, or `unset` it for the default.") from error
