"""The settings in which several runs differ: what has to be known before their numbers are compared."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from recipe.files import Damaged, read_text

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

OF_A_LAUNCH = "ray_kwargs.ray_init.runtime_env."
"""Begins what every launch has of its own."""

LONGEST = 200
"""Characters of a value."""

Differing = tuple[str, str, list[str]]
"""Stage, setting, and its value in each run: empty where a run does not have it."""


def differing(runs: Sequence[Path], stages: Sequence[str]) -> list[Differing]:
    """From `config/resolved.yaml` of each run that has one; a run's own folder counts as the same in all."""
    found = []
    for stage in stages:
        settings = [_settings(run / stage) for run in runs]
        given = [values for values in settings if values]
        for key in sorted({key for values in given for key in values if not key.startswith(OF_A_LAUNCH)}):
            if len({values.get(key) for values in given}) > 1:
                found.append((stage, key, [values.get(key, "")[:LONGEST] for values in settings]))
    return found


def _settings(stage: Path) -> dict[str, str]:
    """Key -> its value as text; none of a stage whose configuration is missing or damaged."""
    try:
        content = yaml.load(read_text(stage / "config" / "resolved.yaml"), Loader=LOADER)
        values = dict(_flat(content, "")) if isinstance(content, dict) else {}
    except (FileNotFoundError, Damaged, yaml.YAMLError, RecursionError, ValueError):
        return {}
    own = values.get("paths.run")
    return {key: text.replace(own, "RUN") if own else text for key, text in values.items()}


def _flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, str) else json.dumps(value, default=str)
