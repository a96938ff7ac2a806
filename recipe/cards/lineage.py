"""From the model that everything began with to an exported one: the stages between them, as their own notes say it.

A card says what happened, so nothing is taken from the configuration of whoever writes it: only from the stage's
`config/resolved.yaml`, the run's `manifest.json` and `done.json`. What is missing or damaged there is left out.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from recipe.files import Damaged, read_text
from recipe.settings import as_list
from recipe.stage.manifest import MANIFEST
from recipe.stage.notes import DONE, DONE_FILE, Done

LONGEST = 50
"""Stages before one; more is a circle of notes."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: a composed configuration has a thousand lines."""

NEW_WEIGHTS = "untrained"
"""The folder of the tiny policy before its warm start."""


@dataclass(frozen=True)
class DataFile:
    """One file that a stage read."""

    name: str
    """As the configuration has it; without its folders where that is a path of one machine."""
    held_out: bool
    sha256: str | None
    """Of the file that was read; None where nobody noted it."""
    rows: Mapping[str, int]
    """Data source (`bfcl/base`) -> rows; empty where the file is another one now, or gone."""


@dataclass(frozen=True)
class Stage:
    """One training in the history of a model."""

    name: str
    settings: Mapping[str, Any]
    """The composed configuration; empty where it was not kept."""
    data: tuple[DataFile, ...]
    done: Done | None
    versions: Mapping[str, str]
    seed: int | None

    def setting(self, key: str) -> Any:
        """A value of the configuration, or None."""
        node: Any = self.settings
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        return node

    @property
    def warm_start(self) -> bool:
        """Whether it learned from conversations, without rewards; False where the configuration was not kept."""
        return bool(self.settings) and "actor_rollout_ref" not in self.settings

    @property
    def reward(self) -> str:
        """What it was rewarded with."""
        if self.warm_start:
            return "none: supervised"
        if self.setting("offline.files") is not None:
            return "stored with the trajectories"
        path = str(self.setting("reward.custom_reward_function.path") or "not known")
        return path if path.startswith("pkg://") else Path(path).name


def lineage(folder: Path) -> tuple[str, tuple[Stage, ...]]:
    """The model that a stage's model goes back to (a path or a hub id), and the stages from there to this one.

    Args:
        folder: of the stage, `outputs/<run>/<stage>`.
    """
    stages: list[Stage] = []
    model = ""
    while len(stages) < LONGEST:
        stage, model = _stage(folder)
        stages.insert(0, stage)
        before = Path(model).parent
        if Path(model).name not in ("hf", "adapter") or not (before / "config").is_dir() or before == folder:
            break
        folder = before
    return model, tuple(stages)


def _stage(folder: Path) -> tuple[Stage, str]:
    """A stage, and the model that it started from; of an adapter that was trained further, that adapter."""
    start, settings = _last_start(folder), _settings(folder)
    stage = Stage(
        name=str(_get(settings, "stage.name") or folder.name),
        settings=settings,
        data=tuple(_data(settings, start)),
        done=DONE.read_or_none(folder / DONE_FILE),
        versions={str(name): str(value) for name, value in _mapping(start.get("versions")).items()},
        seed=start.get("seed") if isinstance(start.get("seed"), int) else None,
    )
    section = "model" if stage.warm_start else "actor_rollout_ref.model"
    adapter = start.get("adapter") or _get(settings, f"{section}.lora_adapter_path")
    model = adapter or start.get("model") or _get(settings, f"{section}.path")
    return stage, str(model or "unknown")


def _last_start(folder: Path) -> dict[str, Any]:
    """The last start of this stage that the run's manifest has."""
    manifest = MANIFEST.read_or_none(folder.parent / "manifest.json")
    found = [start for start in (manifest.starts if manifest else ()) if start.get("stage") == folder.name]
    return found[-1] if found else {}


def _settings(folder: Path) -> dict[str, Any]:
    try:
        content = yaml.load(read_text(folder / "config" / "resolved.yaml"), Loader=LOADER)
    except (FileNotFoundError, Damaged, yaml.YAMLError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _get(settings: Mapping[str, Any], key: str) -> Any:
    return Stage("", settings, (), None, {}, None).setting(key)


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _data(settings: Mapping[str, Any], start: Mapping[str, Any]) -> list[DataFile]:
    noted = _mapping(start.get("data"))
    files = []
    for key, held_out in (("data.train_files", False), ("data.val_files", True), ("environment.guard", True)):
        value = _get(settings, key)
        for name in value if isinstance(value, list) else as_list(value):
            path = Path(os.path.expanduser(str(name)))  # as it stands where there is no such user
            now = _sha256(path)
            same = now is not None and noted.get(str(name), now) == now
            shown = path.name if path.is_absolute() or str(name).startswith("~") else str(name)
            files.append(DataFile(shown, held_out, noted.get(str(name), now), _sources(path) if same else {}))
    return files


def _sha256(path: Path) -> str | None:
    try:
        if not path.is_file():  # nothing at all, or a device that is read without end
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _sources(path: Path) -> dict[str, int]:
    """Data source -> rows of a parquet file; of one without such a column all rows under `conversations`."""
    try:
        names = pq.read_schema(path).names
        if "data_source" not in names:
            return {"conversations": pq.read_metadata(path).num_rows}
        return dict(Counter(pq.read_table(path, columns=["data_source"])["data_source"].to_pylist()))
    except (OSError, pa.ArrowException):
        return {}
