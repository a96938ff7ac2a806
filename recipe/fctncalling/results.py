"""Learning curves and report where train_fctncalling.py has them: links to those of the run."""

import os
from pathlib import Path

from omegaconf import DictConfig

RESULTS = Path("results")


def link(folder: Path, config: DictConfig) -> None:
    """Links to the run's learning curves and report, once these are there. What is no link is left alone.

    Raises:
        OSError: they cannot be made.
    """
    for name, target in {
        "tensorboard": Path(config.paths.stage) / "tensorboard",
        "report.html": Path(config.paths.run) / "report.html",
    }.items():
        path, there = folder / name, os.path.relpath(target, folder)
        if not target.exists() or (path.exists() and not path.is_symlink()):
            continue
        if not path.is_symlink() or os.readlink(path) != there:
            folder.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a link to another run
            path.symlink_to(there)
