"""Which files a configuration is made of, and where in it the keys of each stand: Hydra's own list of defaults."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from recipe.launch.compose import searched, verl_config_dir
from recipe.settings import CONFIG_DIR


@dataclass(frozen=True)
class Source:
    """One file of a configuration."""

    path: Path
    package: str
    """The section that its keys stand in; empty for the whole configuration."""


@cache
def sources(name: str, *choices: str) -> tuple[Source, ...]:
    """The files of `--config-name NAME CHOICES`, in the order in which a later one overrides an earlier one.

    Args:
        name: a configuration of this recipe, without `.yaml`.
        choices: overrides that choose one of a group (`hardware=cpu`).
    """
    folders = (CONFIG_DIR, verl_config_dir())
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        loader = GlobalHydra.instance().config_loader()
        defaults = loader.compute_defaults_list(name, [*choices, searched(folders[1:])], RunMode.RUN).defaults
    found = []
    for item in defaults:
        files = (Path(os.path.normpath(folder / f"{item.config_path}.yaml")) for folder in folders)
        if (path := next((file for file in files if file.is_file()), None)) is not None:
            found.append(Source(path, item.package or ""))
    return tuple(found)
