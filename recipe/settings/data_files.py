"""The data files that a configuration names."""

from typing import Any

from omegaconf import DictConfig, OmegaConf


def data_command(config: DictConfig) -> str:
    """The command that makes the data of the chosen hardware profile."""
    tiny = " --tiny" if config.trainer.device == "cpu" else ""
    return f".venv/bin/python -m data_prep --out {config.paths.data}{tiny}"


def as_list(files: Any) -> list[str]:
    """Names of data files, which may be one or several."""
    return [str(name) for name in files] if OmegaConf.is_list(files) else [str(files)]
