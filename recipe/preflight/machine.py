"""GPUs, free memory and disk: a run that stops at its first checkpoint has cost more than a look beforehand."""

import shutil
import subprocess
from pathlib import Path

import psutil
from omegaconf import DictConfig

from recipe import loopback
from recipe.errors import PreflightError
from recipe.memory.check import check_memory, known_model
from recipe.memory.host import checkpoint_parts, host_parts
from recipe.memory.passes import Part
from recipe.memory.settings import read_settings
from recipe.preflight.mode import devices
from recipe.stage.starts import step_folders

GB = 10**9

CHECKPOINT_PER_WEIGHTS = 8
"""Size of a checkpoint in sizes of the model's own weight files, at most, where its layers are not known: weights in
bfloat16 have 2 bytes a parameter, a checkpoint has them in float32 (4), Adam's two moments (8) and the export (4)."""

EXPORT_PER_WEIGHTS = 2
"""Size of an exported model, in float32, in sizes of the start model's weight files."""


def check_machine(config: DictConfig) -> list[str]:
    """GPUs, their memory, and room on this machine. Prints the estimate of GPU memory.

    Returns what is missing here, which is empty unless `preflight_only` is set: a configuration can be checked on a
    machine that will not run it.

    Raises:
        PreflightError: the run does not fit its cards or, without `preflight_only`, something is missing.
    """
    lacks = []
    alone = loopback.cluster(config.trainer.nnodes) is None  # else `check_cluster` has looked at each node
    for check in (check_devices, check_host_memory, check_disk) if alone else (check_disk,):
        try:
            check(config)
        except PreflightError as error:
            if not config.preflight_only:
                raise
            lacks.append(str(error))
    if alone:
        print(needs_line(config), flush=True)
    if estimate := check_memory(config):
        print(estimate, flush=True)
    return lacks


def count_gpus() -> int:
    """GPUs that nvidia-smi lists on this machine."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    return len(listing.strip().splitlines())


def check_devices(config: DictConfig) -> None:
    """As many GPUs as the profile asks for on this machine."""
    if config.trainer.device != "cuda":
        return
    found, wanted, training = count_gpus(), devices(config), config.trainer.n_gpus_per_node
    if found >= wanted:
        return
    if not found:
        raise PreflightError(
            "the profile asks for GPUs and nvidia-smi shows none. Set hardware=cpu for the CPU profile."
        )
    if wanted > training:
        raise PreflightError(
            f"{wanted} GPUs are asked for, {found} found: {training} that train (trainer.n_gpus_per_node) and "
            f"{wanted - training} that play (actor_rollout_ref.rollout.n_gpus_per_node and nnodes). Let them be "
            f"{found} together."
        )
    raise PreflightError(
        f"{wanted} GPUs are asked for, {found} found. "
        f"Set trainer.n_gpus_per_node={found}, or hardware=gpu1 or hardware=cpu for another profile."
    )


def check_host_memory(config: DictConfig) -> None:
    """Memory for the processes, and for what the model takes outside the GPUs.

    Raises:
        PreflightError: the machine has less; the message has both figures.
    """
    total, wanted = psutil.virtual_memory().total, wanted_memory(config)
    if total < wanted:
        listed = "".join(f", {part.name} {part.bytes / GB:.0f}" for part in _host_parts(config))
        raise PreflightError(
            f"this machine has {total / GB:.1f} GB of memory, this run needs {wanted / GB:.0f}: "
            f"processes {config.launcher.needs.memory_gb} (launcher.needs.memory_gb){listed}. "
            "Lower that setting if you know better."
        )


def needs_line(config: DictConfig) -> str:
    """Memory and disk that a stage takes on this machine, and how little memory is free where that is less."""
    free, wanted = psutil.virtual_memory().available, wanted_memory(config)
    short = f". Only {free / GB:.0f} GB of memory are free just now: end what else runs here" if free < wanted else ""
    return f"NEEDS about {wanted / GB:.0f} GB of memory and {wanted_disk(config) / GB:.0f} GB of disk{short}"


def wanted_memory(config: DictConfig) -> float:
    """Bytes of memory that a node needs: for the processes, and for what the model takes outside the GPUs."""
    return config.launcher.needs.memory_gb * GB + sum(part.bytes for part in _host_parts(config))


def check_disk(config: DictConfig) -> None:
    """Disk for all checkpoints that are kept and the one being written.

    Raises:
        PreflightError: there is less; the message has both figures.
    """
    folder = Path(config.paths.stage).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    wanted = wanted_disk(config)
    room = shutil.disk_usage(existing).free
    if room < wanted:
        raise PreflightError(
            f"{room / GB:.1f} GB are free on the disk of {existing}, about {wanted / GB:.1f} GB are needed for "
            f"{config.trainer.max_actor_ckpt_to_keep} checkpoints and the one being written. Set paths.run to another "
            "disk, lower trainer.max_actor_ckpt_to_keep, or take `optimizer` out of "
            "actor_rollout_ref.actor.checkpoint.save_contents (such a run cannot be resumed exactly)."
        )


def wanted_disk(config: DictConfig) -> float:
    """Bytes of disk that a stage takes beside what an earlier start of it has written."""
    resumed = step_folders(Path(config.trainer.default_local_dir)) if config.trainer.resume_mode == "auto" else {}
    there = sum(path.stat().st_size for old in resumed.values() for path in old.rglob("*") if path.is_file())
    return max(config.launcher.needs.disk_gb * GB, checkpoint_bytes(config) - there)


def checkpoint_bytes(config: DictConfig) -> float:
    """What the stage's checkpoints take on the disk; 0 where none are saved or nothing is known of the model.

    From the model's config.json where its layers are known, else from the size of its weight files.
    """
    if config.trainer.save_freq <= 0:
        return 0
    exports = 2 if config.stage.handover == "last" else 4  # a new copy beside the old one; the best model likewise
    kept = (config.trainer.max_actor_ckpt_to_keep or 1) + 1
    if (model := known_model(config)) is not None:
        checkpoint, export = checkpoint_parts(model, read_settings(config, card=0))
        return checkpoint * kept + export * exports
    folder = Path(str(config.actor_rollout_ref.model.path)).expanduser()
    files = [path for ending in ("safetensors", "bin") for path in folder.glob(f"*.{ending}")]
    weights = sum(path.stat().st_size for path in files)
    models = 2 if config.critic.enable else 1
    return weights * (models * CHECKPOINT_PER_WEIGHTS * kept + EXPORT_PER_WEIGHTS * exports)


def _host_parts(config: DictConfig) -> list[Part]:
    """What the model takes of the host's memory; nothing where its layers are not known."""
    if (model := known_model(config)) is None:
        return []
    if (
        config.trainer.device != "cuda"
    ):  # float32: parameters, gradients and Adam; the engine's; those on their way to it
        return [Part("training", 16 * model.parameters, ""), Part("engine", 8 * model.parameters, "")]
    return host_parts(model, read_settings(config, card=0))
