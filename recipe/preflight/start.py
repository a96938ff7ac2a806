"""The model that a stage starts from: which it is, and whether its folder is whole. Imports nothing heavy."""

import os
import re
from pathlib import Path

from omegaconf import DictConfig

from recipe import smollm2
from recipe.errors import PreflightError
from recipe.preflight import model_folder
from recipe.preflight.adapter import check_adapter, resolve_adapter


def resolve_model(config: DictConfig) -> None:
    """The model to start from: MODEL or actor_rollout_ref.model.path, else what the previous stage exported.

    That is its merged model, or with `stage.adapter=continue` its adapter and the base under it; of the first stage the
    warm start of its run. The tiny policy's profile falls back on that. `~` is written out, once and for
    all readers.

    Raises:
        PreflightError: there is none, or its folder is not whole.
    """
    model = config.actor_rollout_ref.model
    resolve_adapter(config)
    if model.path is None:
        if config.stage.previous:
            candidates = [Path(config.paths.run) / config.stage.previous / "hf"]
        else:
            candidates = [warm_started(config), *([Path(tiny)] if (tiny := config.paths.get("tiny_policy")) else [])]
        found = next((path for path in candidates if (path / "config.json").is_file()), None)
        if found is None:
            hint = (
                f"run the stage before it ({config.stage.previous}) with the same RUN"
                if config.stage.previous
                else "warm-start one with `bash run_sft.sh` and the same RUN"
            )
            raise PreflightError(
                f"no model to start from: {candidates[-1]} is not there. Set MODEL=/path/to/huggingface/folder "
                f"(or actor_rollout_ref.model.path=...), or {hint}."
            )
        model.path = str(found)
    model.path = start_model(str(model.path))
    check_adapter(config)


def warm_started(config: DictConfig) -> Path:
    """Where `bash run_sft.sh` leaves its model with the same RUN, if it was given one."""
    return Path(config.paths.run) / f"stage0_{config.stage.get('warm_start') or 'sft'}" / "hf"


def start_model(given: str) -> str:
    """The path of a model folder with `~` written out, or a hub id as it is; `smollm2` is made if it is not there.

    Raises:
        PreflightError: it is neither, or the folder is not whole.
    """
    if given == smollm2.NAME:
        return str(smollm2.folder())
    path = Path(os.path.expanduser(given))  # Path's own raises for a user that is not there
    if os.path.isdir(path):
        if fault := model_folder.fault(path):
            raise PreflightError(
                f"{given} is not a model folder that can be used: {fault}. Set MODEL to a whole Hugging Face folder or "
                "to a hub id such as Qwen/Qwen2.5-7B-Instruct."
            )
        return str(path)
    if os.path.lexists(path) or not re.fullmatch(r"[\w.-]+/[\w.-]+", given):
        raise PreflightError(
            f"{given} is not a model folder: there is no such folder. "
            "Set MODEL to a Hugging Face folder or to a hub id such as Qwen/Qwen2.5-7B-Instruct."
        )
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(given, "config.json", etag_timeout=5)
    except Exception as error:
        words = " ".join(str(error).split())
        raise PreflightError(
            f"{given} is neither a folder nor a model that the hub gives: {type(error).__name__}: {words[:300]}. "
            "Set MODEL to a Hugging Face folder."
        ) from error
    return given
