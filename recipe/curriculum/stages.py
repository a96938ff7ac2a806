"""A curriculum file, read: which stages, from which configuration, with which overrides.

    stages:
      - stage1                        # short for {name: stage1}
      - name: polish                  # how overrides, the console and --stages call it
        config: stage3                # the file beside curriculum.yaml; without it: the name
        gate: {kind: plateau, metric: val_dev/progress, patience: 4, window: 1}
        handover: best
        overrides: [trainer.total_epochs=5]
    overrides: [trainer.save_freq=5]  # for all stages

What a stage overrides comes after what its curriculum overrides for all, and what the command line says comes last.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from recipe.files import Damaged, PreflightError, one_line, read_text, shown
from recipe.preflight import check_settings
from recipe.settings import CONFIG_DIR, FOLDER, compose, is_folder_name, quoted
from recipe.stage import end

OF_THE_FIRST = ("actor_rollout_ref.model.path=", "actor_rollout_ref.model.lora_adapter_path=")
"""Overrides for all stages that only the first one takes: the others start from what the one before exported."""
LARGEST = 2**16
"""Bytes of a curriculum file; a megabyte of YAML takes its parser seconds."""
KEYS = ("name", "config", "gate", "handover", "overrides")
PREFIX = re.compile(r"^([A-Za-z_][\w-]*):(?=[+~]{0,2}[A-Za-z_])")
"""Before an override: the stage that it is for. A colon in an override's value comes after its `=`."""


@dataclass(frozen=True)
class Stage:
    """One stage of a curriculum."""

    name: str
    config: str
    overrides: tuple[str, ...]
    """All that are for this stage, in the order in which they apply."""
    folder: str
    """Name of its folder under the run."""
    composed: DictConfig = field(compare=False)
    """The configuration that `python -m recipe.train` will run with."""

    @property
    def arguments(self) -> list[str]:
        """The command line of `python -m recipe.train`."""
        return ["--config-name", self.config, *self.overrides]


def compose_stage(name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration that `python -m recipe.train --config-name NAME` would run with.

    Raises:
        PreflightError: it cannot be composed.
    """
    return compose(name, overrides)


def find(name: str, kind: str = "curriculum") -> Path:
    """The curriculum (or ablation) file that a command line names: a path, or a name under recipe/config/curricula."""
    known = {path.stem: path for path in sorted((CONFIG_DIR / "curricula").glob("*.yaml"))}
    known["curriculum"] = CONFIG_DIR / "curriculum.yaml"
    path = known.get(name, Path(name))
    if not path.is_file():
        sys.exit(f"--{kind} {name}: neither a file nor one of {', '.join(sorted(known))}.")
    return path


def read_yaml(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """A YAML file whose top level has no other keys than these.

    Raises:
        SystemExit: it cannot be read, or has others; one line says so.
    """
    try:
        content = yaml.safe_load(read_text(path, LARGEST)) or {}
    except FileNotFoundError:
        sys.exit(f"{path} does not exist. Give a file, or a name as `--curriculum` takes it.")
    except Damaged as error:
        sys.exit(f"{error}. Give a YAML file with the keys {', '.join(keys)}.")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        words = one_line(error) or type(error).__name__
        sys.exit(f"{path} is not YAML that can be read: {words}. Expected the keys {', '.join(keys)}.")
    if not isinstance(content, dict) or set(content) - set(keys):
        sys.exit(f"{path}: expected the keys {', '.join(keys)} at the top level.")
    return content


def read_stages(
    content: Mapping[str, Any], where: Path, arguments: Sequence[str] = (), chosen: Sequence[str] = ()
) -> list[Stage]:
    """The stages of a curriculum's content, with the command line's overrides: for all, or `NAME:override` for one.

    A start model or adapter on the command line is for the first stage.

    Args:
        chosen: names of the stages to return; empty for all.

    Raises:
        SystemExit: the content is no curriculum, an override names a stage that is not in it or cannot be applied, or a
            stage has settings that cannot work.
    """
    for name in ("stages", "overrides"):
        if not isinstance(content.get(name) or [], list):
            sys.exit(f"{where}: {name} is {shown(content[name])}; expected a list.")
    entries = [_entry(entry, where) for entry in content.get("stages") or []]
    names = [entry["name"] for entry in entries]
    if not names or len(set(names)) < len(names):
        sys.exit(f"{where}: expected a list `stages` of different names, got {names}.")
    if unknown := sorted(set(chosen) - set(names)):
        sys.exit(f"--stages names {', '.join(unknown)}; {where} has {', '.join(names)}.")
    for_one: dict[str, list[str]] = {name: [] for name in names}
    for_all: list[str] = []
    for argument in arguments:
        prefix = PREFIX.match(argument)
        if prefix is None:
            for_all.append(argument)
        elif prefix[1] in for_one:
            for_one[prefix[1]].append(argument[prefix.end() :])
        else:
            sys.exit(f"{argument}: no stage {prefix[1]} in {where}; it has {', '.join(names)}.")
    folders = [entry["folder"] for entry in entries]
    if len(set(folders)) < len(folders):
        sys.exit(f"{where}: two stages write into the same folder ({', '.join(folders)}); give them other names.")
    stages: list[Stage] = []
    for entry, previous in zip(entries, ["null", *folders], strict=False):
        if chosen and entry["name"] not in chosen:
            continue
        overrides = [*map(str, content.get("overrides") or []), *entry["overrides"]]
        overrides.append(f"stage.previous={quoted(previous)}")
        overrides += [item for item in for_all if not stages or not item.startswith(OF_THE_FIRST)]
        overrides += for_one[entry["name"]]
        try:
            composed = compose_stage(entry["config"], overrides)
            check_settings(composed)
            end.check(composed)
        except PreflightError as error:
            sys.exit(f"{where}, stage {entry['name']}: {error}")
        if composed.stage.name != entry["folder"]:
            sys.exit(f"stage.name={composed.stage.name}: in a curriculum the folders are named by its file, {where}.")
        stages.append(Stage(entry["name"], entry["config"], tuple(overrides), entry["folder"], composed))
    return stages


def check_folder(name: str, what: str) -> None:
    """Raises SystemExit for what cannot be the name of a folder below another."""
    if not is_folder_name(name):
        sys.exit(f"{what} {shown(name)}; expected {FOLDER[0]}.")


def _entry(entry: Any, where: Path) -> dict[str, Any]:
    """One item of `stages`; its gate, its hand-over and, where it borrows a configuration, its name as overrides."""
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict) or not entry.get("name") or set(entry) - set(KEYS):
        sys.exit(f"{where}: a stage is a name, or has the keys {', '.join(KEYS)}; got {entry!r}.")
    name, config = str(entry["name"]), str(entry.get("config") or entry["name"])
    check_folder(name, f"{where}: the stage")
    check_folder(config, f"{where}: the configuration of stage {name}")
    if not (CONFIG_DIR / f"{config}.yaml").is_file():
        sys.exit(f"{where}: stage {name} needs recipe/config/{config}.yaml, which does not exist; see `config:`.")
    overrides = [f"stage.name={quoted(name)}"] if config != name else []
    folder = name if config != name else yaml.safe_load((CONFIG_DIR / f"{config}.yaml").read_text())["stage"]["name"]
    if "gate" in entry:
        overrides.append("stage.gate=null")  # or the gate of the configuration would be merged with this one
        if entry["gate"] is not None:
            if not isinstance(entry["gate"], dict):
                sys.exit(f"{where}, stage {name}: gate is {shown(entry['gate'])}; expected null or {{kind: ...}}.")
            pairs = ",".join(f"{key}:{json.dumps(value, default=str)}" for key, value in entry["gate"].items())
            overrides.append(f"stage.gate={{{pairs}}}")
    if entry.get("handover"):
        overrides.append(f"stage.handover={entry['handover']}")
    if not isinstance(entry.get("overrides") or [], list):
        sys.exit(f"{where}, stage {name}: overrides is {shown(entry['overrides'])}; expected a list.")
    overrides += map(str, entry.get("overrides") or [])
    return {"name": name, "config": config, "folder": folder, "overrides": overrides}
