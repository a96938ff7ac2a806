"""What a stage leaves on the disk: checkpoints to resume from, the model it hands on, and the note that it is done.

verl names the latest checkpoint in `latest_checkpointed_iteration.txt`, last of all, so a checkpoint that was being
written when the machine went down is never resumed. Four things it does not do, and `repair` does at every start: that
file itself can be cut off; a half-written folder stays; checkpoints of earlier starts are never deleted, because
verl counts in memory; and of a deleted checkpoint the data loader's state stays.
"""

import json
import shutil
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import choosing
from recipe.errors import PreflightError
from recipe.export import ExportError, export
from recipe.files import write_atomic
from recipe.gates import Gate, GateError, values_until
from recipe.metrics_log import read_steps

TRACKER = "latest_checkpointed_iteration.txt"
PARTS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
"""Contents of a checkpoint, and how the file of each begins."""


def broken(folder: Path, contents: list[str]) -> str | None:
    """What is missing or cut off in the checkpoint `folder`, given what is saved in one; None if it is whole."""
    files = [folder / "data.pt"]  # written after all others
    for part in ("actor", "critic") if (folder / "critic").is_dir() else ("actor",):
        try:
            ranks = json.loads((folder / part / "fsdp_config.json").read_text())["world_size"]
        except (OSError, ValueError, KeyError):
            return f"no readable {folder / part / 'fsdp_config.json'}"
        files += [
            folder / part / f"{PARTS[content]}_world_size_{ranks}_rank_{rank}.pt"
            for content in contents
            if content in PARTS
            for rank in range(ranks)
        ]
    for path in files:
        if not zipfile.is_zipfile(path):  # torch's files are; the directory that makes them one is written last
            return f"{path} is {'cut off' if path.exists() else 'missing'}"
    return broken_export(folder / "actor" / "huggingface") if "hf_model" in contents else None


def broken_export(folder: Path) -> str | None:
    """What is missing or cut off in a Hugging Face model folder; None if it is whole.

    Reads no more than headers and imports nothing; `recipe.export.misfit` says whether the tensors are the model's.
    """
    if not (folder / "config.json").is_file():
        return f"no config.json in {folder}"
    index = folder / "model.safetensors.index.json"
    try:
        files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
        for name in files:
            path = folder / name
            with path.open("rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(length))
            end = max(entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__")
            if path.stat().st_size != 8 + length + end:
                return f"{path} is cut off"
    except (OSError, ValueError, KeyError, struct.error) as error:
        return f"the weights in {folder} cannot be read: {type(error).__name__}: {error}"
    return None


def latest(checkpoints: Path) -> int:
    """Step of the checkpoint that verl would resume; 0 if there is none."""
    try:
        return int((checkpoints / TRACKER).read_text())
    except (OSError, ValueError):
        return 0


def step_folders(checkpoints: Path) -> dict[int, Path]:
    """Step -> folder of every checkpoint, whole or not."""
    return {int(path.name.split("_")[-1]): path for path in checkpoints.glob("global_step_[0-9]*")}


def prune(config: DictConfig) -> None:
    """After a save: keep the newest `trainer.max_actor_ckpt_to_keep` checkpoints, whichever start wrote them."""
    if keep := config.trainer.max_actor_ckpt_to_keep:
        folders = step_folders(Path(config.trainer.default_local_dir))
        for step in sorted(folders)[:-keep]:
            shutil.rmtree(folders[step], ignore_errors=True)


def check(config: DictConfig) -> None:
    """How the stage saves, ends and hands on fits together.

    Raises:
        PreflightError: it does not.
    """
    trainer, stage = config.trainer, config.stage
    try:
        gate = gate_of(config)
    except GateError as error:
        raise PreflightError(str(error)) from error
    if stage.handover not in ("last", "best"):
        raise PreflightError(f"stage.handover={stage.handover}; expected last or best.")
    choosing.check(config)
    if trainer.save_freq <= 0:
        return
    if trainer.max_actor_ckpt_to_keep == 1:
        raise PreflightError(
            "trainer.max_actor_ckpt_to_keep=1: verl deletes that one before the next is whole, and a stage killed in "
            "between could not be resumed. Set 2 or more."
        )
    if "hf_model" not in config.actor_rollout_ref.actor.checkpoint.save_contents:
        raise PreflightError(
            "actor_rollout_ref.actor.checkpoint.save_contents lacks hf_model, which is what the next stage starts from."
        )
    validates = trainer.test_freq > 0
    if stage.handover == "best" and (not validates or trainer.save_freq % trainer.test_freq):
        raise PreflightError(
            f"stage.handover=best compares checkpoints that were validated, but trainer.save_freq={trainer.save_freq} "
            f"is no multiple of trainer.test_freq={trainer.test_freq}. Make it one."
        )
    if gate is not None and gate.metric.startswith("val") and not validates:
        raise PreflightError(f"stage.gate.metric={gate.metric} needs validations; set trainer.test_freq.")


def gate_of(config: DictConfig) -> Gate | None:
    """The gate that `stage.gate` states."""
    return Gate.parse(OmegaConf.to_container(config.stage.gate) if config.stage.gate else None)  # type: ignore[arg-type]


def repair(config: DictConfig) -> list[str]:
    """Before a start: go back to the last whole checkpoint and remove what no start will use. Returns what was done."""
    checkpoints = Path(config.trainer.default_local_dir)
    actor = config.actor_rollout_ref.actor
    if config.trainer.resume_mode != "auto" or not str(actor.strategy).startswith("fsdp") or not checkpoints.is_dir():
        return []
    folders = step_folders(checkpoints)
    said, noted = [], latest(checkpoints)
    whole = 0
    for step in sorted(folders, reverse=True):
        if fault := broken(folders[step], list(actor.checkpoint.save_contents)):
            said.append(f"checkpoint of step {step} is not whole and is removed: {fault}")
            shutil.rmtree(folders.pop(step), ignore_errors=True)
        else:
            whole = step
            break
    if whole != noted or (not whole and (checkpoints / TRACKER).exists()):
        said.append(f"{TRACKER} said {noted or 'nothing'} and now says {whole or 'nothing'}")
        if whole:
            write_atomic(checkpoints / TRACKER, str(whole))
        else:
            (checkpoints / TRACKER).unlink(missing_ok=True)
    for path in (Path(config.paths.stage) / "rollouts" / "train").glob("*.jsonl"):
        _end_line(path)
    return said + ([f"from the checkpoint of step {whole}"] if whole else [])


def _end_line(path: Path) -> None:
    """A line that a kill cut off must not swallow the first one of the repeated step."""
    with path.open("rb+") as file:
        if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
            file.write(b"\n")


def asked_steps(config: DictConfig) -> dict[str, Any]:
    """The settings that decide how many steps a stage has."""
    trainer = config.trainer
    return {
        "total_epochs": trainer.total_epochs,
        "total_training_steps": trainer.total_training_steps,
        "train_batch_size": config.data.train_batch_size,
        "train_files": str(config.data.train_files),
        **({"over_budget": "leave_out"} if config.stage.get("over_budget") == "leave_out" else {}),
    }


def note_target(config: DictConfig, last: int, planned: int, reason: str | None = None) -> None:
    """Note the step at which this stage ends. Only the trainer knows it: verl drops prompts that are too long."""
    note = {
        "total_steps": last,
        "planned": planned,
        "reason": reason,
        "gate": str(config.stage.gate),
        "asked": asked_steps(config),
        "chose": choosing.decisions(config),
    }
    write_atomic(Path(config.paths.stage) / "total_steps.json", json.dumps(note) + "\n")


def read_target(stage: Path) -> dict[str, Any] | None:
    """What `note_target` noted last; None before a first launch has read its data."""
    try:
        return json.loads((stage / "total_steps.json").read_text())
    except (OSError, ValueError):
        return None


def at_target(config: DictConfig) -> bool:
    """Whether the last checkpoint is that of the last step, so that only the export is left to do."""
    target = read_target(Path(config.paths.stage))
    if target is None or target.get("asked") != asked_steps(config):
        return False
    if target["reason"] and target["gate"] != str(config.stage.gate):  # another gate may not have ended it
        return False
    return 0 < target["total_steps"] <= latest(Path(config.trainer.default_local_dir))


def keep_best(config: DictConfig, step: int, value: float) -> bool:
    """Export the model of the checkpoint just written if its validation is the best so far. True if it was.

    Raises:
        ExportError: it would not load as what it is.
    """
    stage = Path(config.paths.stage)
    source = Path(config.trainer.default_local_dir) / f"global_step_{step}" / "actor" / "huggingface"
    before = read_best(stage)
    if not source.is_dir() or (before and before["step"] < step and before["value"] >= value):
        return False
    model = export(source, stage / "best" / f"global_step_{step}" / "hf", str(config.actor_rollout_ref.model.path))
    note = {"step": step, "value": value, "metric": config.stage.handover_metric, "model": str(model)}
    write_atomic(stage / "best.json", json.dumps(note) + "\n")
    for old in (stage / "best").iterdir():
        if old != model.parent:
            shutil.rmtree(old, ignore_errors=True)
    return True


def read_best(stage: Path) -> dict[str, Any] | None:
    """The best validated checkpoint so far: step, value, metric, model."""
    try:
        best = json.loads((stage / "best.json").read_text())
    except (OSError, ValueError):
        return None
    return None if broken_export(Path(best["model"])) else best


def finish(config: DictConfig) -> dict[str, Any]:
    """Export the model that the stage hands on to `<stage>/hf` and note that the stage is done.

    A stage is done only if its checkpoint is that of its last step, or of the step at which its gate ended it.

    Returns:
        The note: global_step, target, reason, model, model_step, best, gate, and `chose`, what validation has decided.
    """
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    step, target = latest(checkpoints), read_target(stage)
    if target is None or step < target["total_steps"]:
        sys.exit(
            f"{config.stage.name} ended at step {step} of {target['total_steps'] if target else 'an unknown number'}; "
            "start it again to go on."
        )
    done, best = stage / "done.json", read_best(stage) if config.stage.handover == "best" else None
    source = Path(best["model"]) if best else checkpoints / f"global_step_{step}" / "actor" / "huggingface"
    done.unlink(missing_ok=True)
    try:
        hf = export(source, stage / "hf", str(config.actor_rollout_ref.model.path))
    except ExportError as error:
        sys.exit(f"{config.stage.name} has made all its steps, but {error}")
    decided: Any = config  # the best, by the metric of the start that chose it, which may have been another one
    if best:
        decided = OmegaConf.merge(config, {"stage": {"handover_metric": best["metric"]}})
    note = {
        "global_step": step,
        "target": target["planned"],
        "reason": target["reason"],
        "model": str(hf),
        "model_step": best["step"] if best else step,
        "best": best,
        "gate": judge(config, step),
        "chose": choosing.decisions(decided),
    }
    write_atomic(done, json.dumps(note) + "\n")
    return note


def judge(config: DictConfig, step: int) -> dict[str, Any] | None:
    """How the stage's gate stands at `step`: passed, stops, text. None without a gate."""
    gate = gate_of(config)
    if gate is None:
        return None
    target = read_target(Path(config.paths.stage))
    if target and target["reason"]:  # the gate itself ended the stage; one step more must not take that back
        return {"passed": True, "stops": False, "text": target["reason"]}
    passed, text = gate.judge(values_until(read_steps(Path(config.paths.stage)), gate.metric, step))
    return {"passed": passed, "stops": gate.stops and not passed, "text": text}


def read_done(stage: Path) -> dict[str, Any] | None:
    """What `finish` noted about a stage, or None if the stage is not done."""
    note = stage / "done.json"
    if not note.exists() or not (stage / "hf" / "config.json").exists():
        return None
    return json.loads(note.read_text())
