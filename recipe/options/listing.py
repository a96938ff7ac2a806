"""All settings of a configuration: this recipe's own, and those of verl's that its files set."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recipe.launch.compose import compose, verl_config_dir
from recipe.launch.sources import Source, sources
from recipe.options.comments import Key, read_keys
from recipe.options.fields import UNSET, typed_fields
from recipe.settings import CONFIG_DIR
from recipe.settings.additions import OURS, has

AMONG_VERLS = ("preflight_only", "reward.timeout", "data.val_share", "actor_rollout_ref.actor.policy_loss.ratio_norm")
"""Settings of ours outside the sections that are ours."""

FOR_ALL = ("base.yaml", "sft.yaml")
"""Files whose comments say what a setting is for; others say why they have another value."""

HYDRAS = ("hydra", "defaults")
"""Sections of our files that are no settings of a run."""


@dataclass
class Option:
    """One setting."""

    key: str
    ours: bool
    """Whether verl has nothing of this name."""
    values: dict[str, Any] = field(default_factory=dict)
    """Hardware profile -> the value there, `${...}` replaced; `UNSET` where there is none."""
    said: dict[str, str] = field(default_factory=dict)
    """Place (`base.yaml:17`) -> what stands there about it, the most general first; empty where only a value does."""

    @property
    def meaning(self) -> str:
        """The first text about it; empty where there is none."""
        return next((text for text in self.said.values() if text), "")


@dataclass(frozen=True)
class Listing:
    """The settings of one configuration."""

    name: str
    written_for: str
    """The hardware profile that its files are written for."""
    options: tuple[Option, ...]


def names() -> list[str]:
    """The configurations that can be started."""
    return sorted(path.stem for path in CONFIG_DIR.glob("*.yaml") if _profile(path) is not None)


def all_of(name: str) -> dict[str, Any]:
    """Key -> value of everything in a configuration, what verl has and no file of ours sets included."""
    chosen = _profile(CONFIG_DIR / f"{name}.yaml")
    assert chosen is not None, name
    group, written_for = chosen
    made = OmegaConf.to_container(compose(name, [f"{group}={written_for}"], group), resolve=False)
    return dict(_leaves(made))


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif not path.endswith("_target_"):
        yield path, node


def listing(name: str) -> Listing:
    """The settings of `--config-name NAME`, one of `names()`, in the order of its files."""
    chosen = _profile(CONFIG_DIR / f"{name}.yaml")
    assert chosen is not None, name
    group, written_for = chosen
    profiles = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
    configs = {profile: compose(name, [f"{group}={profile}"], group) for profile in profiles}
    made_of = dict.fromkeys(source for profile in profiles for source in sources(name, f"{group}={profile}"))
    others = {other for source in made_of for other in _groups(source.path)}
    choices = [Source(path, "") for other in sorted(others) for path in sorted((CONFIG_DIR / other).glob("*.yaml"))]
    verls: dict[str, dict[str, str]] = {}
    found: dict[str, Option] = {}
    for source in [*made_of, *choices]:
        own = source.path.is_relative_to(CONFIG_DIR)
        for key, entry in _keys(source, above=not own).items():
            place = _place(source.path, entry)
            if not own:
                verls.setdefault(key, {})[place] = entry.comment
            elif entry.leaf and key.split(".")[0] not in HYDRAS and not key.endswith("_target_"):
                found.setdefault(key, Option(key, _is_ours(key))).said[place] = entry.comment
    for one in found.values():
        if last := [(place, text) for place, text in verls.get(one.key, {}).items() if text][-1:]:
            one.said = {**dict(last), **one.said}
    defaults = _add_typed(found, "sft" in group)
    for one in found.values():
        one.values = {name: _value(config, one.key, defaults.get(one.key, UNSET)) for name, config in configs.items()}
    return Listing(name, written_for, tuple(found.values()))


def _profile(path: Path) -> tuple[str, str] | None:
    """Group and name of the hardware profile that a file chooses; None where it chooses none."""
    defaults = _defaults(path)
    for base in [item for item in defaults if isinstance(item, str) and item != "_self_"]:
        if (file := CONFIG_DIR / f"{base}.yaml").is_file():
            defaults = [*defaults, *_defaults(file)]
    found = ((str(group), str(choice)) for item in defaults if isinstance(item, dict) for group, choice in item.items())
    return next(((group, choice) for group, choice in found if group in ("hardware", "sft_hardware")), None)


def _groups(path: Path) -> list[str]:
    """The groups that a file of ours chooses from, the hardware profiles apart."""
    if not path.is_relative_to(CONFIG_DIR):
        return []
    chosen = [str(group) for item in _defaults(path) if isinstance(item, dict) for group in item]
    return [group for group in chosen if not group.endswith("hardware")]


@cache
def _defaults(path: Path) -> list[Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content.get("defaults", []) if isinstance(content, dict) else []


def _keys(source: Source, above: bool) -> dict[str, Key]:
    start = f"{source.package}." if source.package else ""
    return {f"{start}{key}": entry for key, entry in read_keys(source.path, above).items()}


def _place(path: Path, entry: Key) -> str:
    if path.is_relative_to(CONFIG_DIR):
        return f"{path.relative_to(CONFIG_DIR)}:{entry.line}"
    return f"verl/{path.relative_to(verl_config_dir())}:{entry.line}"


def _is_ours(key: str) -> bool:
    return key in AMONG_VERLS or f"{key}.".startswith(tuple(f"{section}." for section in OURS))


def _add_typed(found: dict[str, Option], warm_start: bool) -> dict[str, Any]:
    """Add what only the typed settings have, and what they say; their defaults by key."""
    defaults = {}
    sections = {key.rpartition(".")[0] for key in found}
    for one in typed_fields(warm_start):
        defaults[one.key] = one.default
        if one.key in sections and one.key not in found:
            continue
        option = found.setdefault(one.key, Option(one.key, True))
        if one.text and not any(text and place.startswith(FOR_ALL) for place, text in option.said.items()):
            option.said = {one.place: one.text, **option.said}
    return defaults


def _value(config: DictConfig, key: str, default: Any) -> Any:
    if not has(config, key):
        return default
    try:
        value = OmegaConf.select(config, key, throw_on_missing=False)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:  # it refers to what has no value
        return UNSET
