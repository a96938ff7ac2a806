"""Checks of free memory and disk: a run that stops at its first checkpoint has cost more than a look beforehand."""

import shutil
from pathlib import Path

from omegaconf import DictConfig

from recipe.preflight import PreflightError

GB = 10**9

CHECKPOINT_PER_WEIGHTS = 8
"""Size of a checkpoint in sizes of the model's own weight files, at most: weights in bfloat16 have 2 bytes a parameter,
a checkpoint has them in float32 (4), Adam's two moments (8) and the exported model (4)."""

EXPORT_PER_WEIGHTS = 2
"""Size of an exported model, in float32, in sizes of the start model's weight files."""


def check_room(config: DictConfig, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Memory for the profile, and disk for all checkpoints that are kept and the one being written.

    Raises:
        PreflightError: there is less than `launcher.needs` or than the checkpoints take; the message has both figures.
    """
    needs, free = config.launcher.needs, _available_memory(meminfo)
    if free is not None and free < needs.memory_gb * GB:
        raise PreflightError(
            f"{free / GB:.1f} GB of memory are free, this profile needs {needs.memory_gb} (launcher.needs.memory_gb). "
            "End what else runs on this machine, or lower that setting if you know better."
        )
    folder = Path(config.paths.stage).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    there = sum(path.stat().st_size for path in folder.glob("checkpoints/**/*") if path.is_file())  # of a start before
    wanted = max(needs.disk_gb * GB, checkpoint_bytes(config) - there)
    room = shutil.disk_usage(existing).free
    if room < wanted:
        raise PreflightError(
            f"{room / GB:.1f} GB are free on the disk of {existing}, about {wanted / GB:.1f} GB are needed for "
            f"{config.trainer.max_actor_ckpt_to_keep} checkpoints and the one being written. Set paths.run to another "
            "disk, lower trainer.max_actor_ckpt_to_keep, or take `optimizer` out of "
            "actor_rollout_ref.actor.checkpoint.save_contents (such a run cannot be resumed exactly)."
        )


def checkpoint_bytes(config: DictConfig) -> int:
    """What the stage's checkpoints take on the disk; 0 where none are saved or the weights are not on this machine."""
    if config.trainer.save_freq <= 0:
        return 0
    folder = Path(str(config.actor_rollout_ref.model.path)).expanduser()
    files = [path for ending in ("safetensors", "bin") for path in folder.glob(f"*.{ending}")]
    weights = sum(path.stat().st_size for path in files)
    models = 2 if config.critic.enable else 1
    exports = 2 if config.stage.handover == "last" else 4  # a new copy beside the old one; the best model likewise
    kept = (config.trainer.max_actor_ckpt_to_keep or 1) + 1
    return weights * (models * CHECKPOINT_PER_WEIGHTS * kept + EXPORT_PER_WEIGHTS * exports)


def _available_memory(meminfo: Path) -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024
