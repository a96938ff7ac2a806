"""Which settings and data a warm start was made with, so that it is neither made twice nor gone on with by others."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.masked import masked
from recipe.errors import PreflightError
from recipe.files import StateFile
from recipe.settings import as_list
from recipe.stage import starts
from recipe.stage.notes import MADE_WITH_FILE
from recipe.typed import STRICT


@dataclass(frozen=True)
class MadeWith:
    """`made_with.json`: what the model in `hf`, or the checkpoints beside it, were made with."""

    __pydantic_config__ = STRICT
    fingerprint: str


MADE_WITH = StateFile(MadeWith)

DECIDE_NOTHING = ("resume_mode", "save_freq", "max_ckpt_to_keep", "logger")
"""Settings of `trainer` with which the same model is made."""


def fingerprint(config: DictConfig) -> str:
    """Hash of everything that decides the outcome: configuration, data, and how the tiny policy is made."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    settings["trainer"] = {name: value for name, value in settings["trainer"].items() if name not in DECIDE_NOTHING}
    settings["trainer"]["test_freq"] = -1  # decides nothing
    settings["paths"].pop("tiny_policy", None)  # stands in `run` and `stage`
    if settings["data"]["val_share"] is None:
        del settings["data"]["val_share"]
    parts = [json.dumps(masked(settings), sort_keys=True).encode()]
    for names in (config.data.train_files, config.data.val_files):
        parts += [Path(name).read_bytes() for name in (as_list(names) if names else [])]
    parts.append((Path(__file__).parents[1] / "cpu" / "tiny_policy.py").read_bytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def check_same_settings(config: DictConfig, made: MadeWith) -> None:
    """A checkpoint at the last step has nothing left to train, so another setting must not resume it. Writes nothing.

    Raises:
        PreflightError: other settings or data wrote what is there, or it is not known which.
    """
    if not starts.resumes(config):
        return
    checkpoints = Path(config.trainer.default_local_dir)
    notes = [folder / MADE_WITH_FILE for folder in (checkpoints, Path(config.paths.stage))]
    before = next((MADE_WITH.read_or_none(note) for note in notes if note.exists()), None)
    if before != made:
        raise PreflightError(
            f"{checkpoints} holds checkpoints made with {'other' if before else 'unknown'} settings or data; expected "
            f"those of this start. {starts.REMEDY}"
        )
