"""The settings that evaluations were played with, and those in which several differ: a score is one of its settings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interaction.endpoint.client import SAMPLING
from interaction.environment import read_options
from interaction.policy import TURNS, read_policy
from interaction.words import cut
from recipe.evaluation.store import SETTINGS, Settings
from recipe.files import Damaged, read_json
from recipe.report.pass_rate import Method

SETTINGS_FILE = "settings.json"
RULES = ("at_step_limit", "withheld", "max_steps_per_turn", "max_format_errors_per_turn", "options", "policy")
"""Fields of `Settings` that are told as the rules and the turn policy they amount to."""

SERVERS = "the server's own"

LONGEST = 200
"""Characters of a value."""


def played_with(folder: Path) -> dict[str, str] | None:
    """Setting -> its value as text, of an evaluation's folder; None where they are missing or damaged.

    Settings of the environment and of turns are all there, those too that nobody gave: a default that was given is none
    that differs.
    """
    path = folder / SETTINGS_FILE
    try:
        settings = SETTINGS.read(path)
        if settings is None:
            return None
        said = read_json(path)
        found = {name: value for name, value in asdict(settings).items() if name not in RULES}
        found |= {name: SERVERS for name in SAMPLING if said.get(name) is None}  # an older file lacks some
        return {name: _text(value) for name, value in {**found, **_rules(settings)}.items()}
    except (Damaged, FileNotFoundError, ValueError):
        return None


def _rules(settings: Settings) -> dict[str, Any]:
    """By BFCL's rules the message after the last one ends the episode: it is not counted."""
    rules, policy = settings.rules(), read_policy(settings.turn_policy())
    turns = {name: getattr(policy, name) for name in TURNS}
    turns["max_steps_per_turn"] -= rules.get("at_step_limit") == "official"
    try:
        options = read_options(settings.environment, rules)
    except ValueError:  # a file of the user's that is not given here, or settings of another release
        options = rules
    return {f"option {name}": value for name, value in options.items()} | turns


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "none"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def differing(methods: Sequence[Method]) -> list[str]:
    """A line that names the settings in which the evaluations among these differ; none where there are not two."""
    evaluations = [method for method in methods if method.played_with is not None]
    if len(evaluations) < 2:
        return []
    names, settings = " | ".join(method.name for method in evaluations), [one.played_with or {} for one in evaluations]
    if unknown := [method.name for method in evaluations if not method.played_with]:
        return [f"Settings of {names} are not compared: {SETTINGS_FILE} of {', '.join(unknown)} cannot be read"]
    found = []
    for name in dict.fromkeys(name for one in settings for name in one):
        values = [one.get(name, "none") for one in settings]
        if len(set(values)) > 1:
            found.append(f"{name}: {' | '.join(cut(value, LONGEST) for value in values)}")
    others = "; the other rows have none (a run validates by its stages' own)" * (len(evaluations) < len(methods))
    if not found:
        return [f"Settings of {names}: the same{others}"]
    return [f"Settings that differ, {names}: {'; '.join(found)}{others}"]
