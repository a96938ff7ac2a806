"""Which files `offline.files` means: each that is named, and of a folder those that hold trajectories."""

import os
from collections.abc import Iterable
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError

ROLLOUTS, TRAJECTORIES = ".jsonl", ".parquet"
FORMS = (
    "the episodes of a stage that was played with interaction.record_tokens=true (<stage>/rollouts/train/*.jsonl), or "
    "trajectories.parquet of `python -m data_prep --steptool FILE --out DIR`"
)


def is_offline(config: DictConfig) -> bool:
    """Whether a stage learns from stored trajectories."""
    return OmegaConf.select(config, "offline.files") is not None


def found(named: Iterable[str]) -> list[Path]:
    """The files, in the order in which they are named, those of a folder by name.

    Raises:
        PreflightError: a name stands for nothing that can be read, or one file is named twice.
    """
    files: dict[Path, Path] = {}
    for name in named:
        path = Path(os.path.expanduser(name))
        if not path.exists():
            raise PreflightError(f"offline.files={name} does not exist; expected {FORMS}.")
        inside = sorted(item for item in path.iterdir() if _is_form(item)) if path.is_dir() else [path]
        if not inside or not all(map(_is_form, inside)):
            raise PreflightError(f"offline.files={name} holds nothing to train on; expected {FORMS}.")
        for item in inside:
            if (same := item.resolve()) in files:
                raise PreflightError(f"offline.files names {item} twice. Name each file once.")
            files[same] = item
    return list(files.values())


def _is_form(path: Path) -> bool:
    return path.is_file() and path.suffix in (ROLLOUTS, TRAJECTORIES)
