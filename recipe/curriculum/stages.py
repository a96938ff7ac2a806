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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from omegaconf import DictConfig
from pydantic import AfterValidator

from recipe.files import PreflightError, Strict, one_line, read
from recipe.preflight import check_settings
from recipe.settings import CONFIG_DIR, FOLDER, is_folder_name, quoted
from recipe.settings import compose as compose_stage

T = TypeVar("T")

OF_THE_FIRST = re.compile(r"\+{0,2}actor_rollout_ref\.model\.(path|lora_adapter_path)=")
"""Overrides for all stages that only the first one takes: the others start from what the one before exported."""
PREFIX = re.compile(r"^([A-Za-z_][\w-]*):(?=[+~]{0,2}[A-Za-z_])")
"""Before an override: the stage that it is for. A colon in an override's value comes after its `=`."""


def _folder_name(name: str) -> str:
    if not is_folder_name(name):
        raise ValueError(FOLDER[0])
    return name


Name = Annotated[str, AfterValidator(_folder_name)]


@dataclass(frozen=True)
class Entry(Strict):
    """An item of `stages`."""

    name: Name
    config: Name | None = None
    gate: dict[str, Any] | Literal["as configured"] | None = "as configured"
    handover: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of its folder under the run: its own, where it borrows a configuration, else the configuration's."""
        if self.config not in (None, self.name):
            return self.name
        return str(yaml.safe_load((CONFIG_DIR / f"{self.name}.yaml").read_text())["stage"]["name"])

    def all_overrides(self) -> list[str]:
        """Its overrides, with those that its other keys stand for."""
        found = [f"stage.name={quoted(self.name)}"] if self.config not in (None, self.name) else []
        if self.gate != "as configured":
            found.append("stage.gate=null")  # or the gate of the configuration would be merged with this one
            if self.gate is not None:
                pairs = ",".join(f"{key}:{json.dumps(value, default=str)}" for key, value in self.gate.items())
                found.append(f"stage.gate={{{pairs}}}")
        if self.handover:
            found.append(f"stage.handover={self.handover}")
        return [*found, *self.overrides]


@dataclass(frozen=True)
class Plan(Strict):
    """A curriculum file."""

    stages: tuple[Name | Entry, ...] = ()
    overrides: tuple[str, ...] = ()


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


def find(name: str, kind: str = "curriculum") -> Path:
    """The curriculum (or ablation) file that a command line names: a path, or a name under recipe/config/curricula."""
    known = {path.stem: path for path in sorted((CONFIG_DIR / "curricula").glob("*.yaml"))}
    known["curriculum"] = CONFIG_DIR / "curriculum.yaml"
    path = known.get(name, Path(name))
    if not path.is_file():
        sys.exit(f"--{kind} {name}: neither a file nor one of {', '.join(sorted(known))}.")
    return path


def read_yaml(kind: type[T], path: Path) -> T:
    """A YAML file as the dataclass `kind`. Raises SystemExit where it cannot be read as such."""
    try:
        return read(kind, yaml.safe_load(path.read_text(encoding="utf-8")) or {}, str(path))
    except PreflightError as error:
        sys.exit(str(error))
    except (yaml.YAMLError, ValueError) as error:
        sys.exit(f"{path} is not YAML that can be read: {one_line(error)}")


def read_stages(plan: Plan, where: Path, arguments: Sequence[str] = (), chosen: Sequence[str] = ()) -> list[Stage]:
    """The stages of a curriculum, with the command line's overrides: for all, or `NAME:override` for one.

    A start model or adapter for all stages is for the first: of the file, or on the command line of those that are run.

    Args:
        chosen: names of the stages to return; empty for all.

    Raises:
        SystemExit: the file is no curriculum, an override names a stage that is not in it or cannot be applied, or a
            stage has settings that cannot work.
    """
    entries = [Entry(entry) if isinstance(entry, str) else entry for entry in plan.stages]
    for entry in entries:
        if not (CONFIG_DIR / f"{entry.config or entry.name}.yaml").is_file():
            sys.exit(f"{where}: stage {entry.name} needs a configuration in recipe/config; set its `config`.")
    names, folders = [entry.name for entry in entries], [entry.folder for entry in entries]
    if not names or len({*names}) < len(names) or len({*folders}) < len(names):
        sys.exit(f"{where}: expected a list `stages` of different names and folders, got {names}, {folders}.")
    if unknown := sorted({*chosen} - {*names}):
        sys.exit(f"--stages names {', '.join(unknown)}; {where} has {', '.join(names)}.")
    given: dict[str | None, list[str]] = {name: [] for name in (None, *names)}
    for argument in arguments:
        prefix = PREFIX.match(argument)
        if prefix is not None and prefix[1] not in names:
            sys.exit(f"{argument}: no stage {prefix[1]} in {where}; it has {', '.join(names)}.")
        given[prefix and prefix[1]].append(argument[prefix.end() if prefix else 0 :])
    stages: list[Stage] = []
    for entry, previous in zip(entries, ["null", *folders], strict=False):
        if chosen and entry.name not in chosen:
            continue
        overrides = [item for item in plan.overrides if entry is entries[0] or not OF_THE_FIRST.match(item)]
        overrides += [*entry.all_overrides(), f"stage.previous={quoted(previous)}"]
        overrides += [item for item in given[None] if not stages or not OF_THE_FIRST.match(item)]
        overrides += given[entry.name]
        config = entry.config or entry.name
        try:
            composed = compose_stage(config, overrides)
            check_settings(composed)
        except PreflightError as error:
            sys.exit(f"{where}, stage {entry.name}: {error}")
        if composed.stage.name != entry.folder:
            sys.exit(f"stage.name={composed.stage.name}: in a curriculum the folders are named by its file, {where}.")
        stages.append(Stage(entry.name, config, tuple(overrides), entry.folder, composed))
    return stages
