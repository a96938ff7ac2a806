"""Which checkpoint a start goes on from: the newest whole one of the training that wrote last.

verl names the latest checkpoint in `latest_checkpointed_iteration.txt`, last of all, so one that was being written when
the machine went down is never resumed. Before a start `go_back` does what verl does not: that file itself can be cut
off, a half-written folder stays, and a checkpoint can have changed since it was written.
"""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.files import Damaged, PreflightError, StateFile, read_json, set_aside, write_atomic
from recipe.stage.integrity import READERS, broken_archive, broken_export
from recipe.stage.notes import ADAPTER, ADAPTER_FILE, KL_COEFFICIENT, KL_FILE, QUEUE, QUEUE_FILE, QUEUE_FOLDER
from recipe.stage.starts import TRACKER, latest, named_like_checkpoints, step_folders

PARTS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
"""Contents of a checkpoint, and how the file of each begins."""

MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class Layout:
    """Where one of verl's trainers puts what a checkpoint consists of."""

    parts: tuple[str, ...]
    """Folders of the models; those after the first may be missing."""
    last: str
    """The file that is written after all others."""


STAGE, WARM_START = Layout(("actor", "critic"), "data.pt"), Layout((".",), "data_0.pt")


def broken(folder: Path, contents: list[str], layout: Layout = STAGE) -> str | None:
    """What is missing or damaged in the checkpoint `folder`, given what is saved in one; None if it is whole.

    Reads all of it (`recipe.stage.integrity` says how fast).
    """
    model, files = folder / layout.parts[0], [folder / layout.last]
    for part in [part for part in layout.parts if (folder / part) == model or (folder / part).is_dir()]:
        try:
            ranks = read_json(folder / part / "fsdp_config.json")["world_size"]
        except (OSError, ValueError, KeyError, TypeError):
            ranks = None
        if not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
            return f"no readable {folder / part / 'fsdp_config.json'}"
        files += [
            folder / part / f"{PARTS[content]}_world_size_{ranks}_rank_{rank}.pt"
            for content in contents
            if content in PARTS
            for rank in range(ranks)
        ]
    for path in files:
        if not path.is_file():  # before the others are read
            return f"{path} is missing"
    notes: list[tuple[Path, StateFile[Any]]] = [
        (folder / KL_FILE, KL_COEFFICIENT),
        (model / ADAPTER_FILE, ADAPTER),
        (folder / QUEUE_FILE, QUEUE),
    ]
    for path, kind in notes:
        try:
            kind.read(path)
        except Damaged as error:
            return str(error)
    queue = folder / QUEUE_FOLDER / "metadata.json"  # which TransferQueue puts in place last, and verl after all else
    if (folder / QUEUE_FILE).exists() and not queue.is_file():
        return f"{queue} is missing"
    with ThreadPoolExecutor(READERS) as pool:
        fault = next(filter(None, pool.map(broken_archive, files)), None)
    if fault or "hf_model" not in contents:
        return fault
    return broken_export(model / "huggingface")


def go_back(checkpoints: Path, contents: list[str], layout: Layout = STAGE, alone: bool = True) -> list[str]:
    """Have verl's file name the newest whole checkpoint of the training that wrote last. Returns what was done.

    A damaged checkpoint is set aside, of a link only the link; one that was being written when its start was killed is
    removed, for its room is needed.

    Args:
        alone: nothing but this machine writes checkpoints there. Where others do, one that is not whole here may lack
            what another one has, and is set aside too.

    Raises:
        PreflightError: the newest checkpoint is whole, but was saved without something that this start needs.
        OSError: something cannot be renamed or written.
    """
    said = []
    if os.path.lexists(tracker := checkpoints / TRACKER) and not tracker.is_file():
        said.append(f"{tracker} is no file, and is set aside as {set_aside(tracker).name}")
    noted = latest(checkpoints)
    for path in named_like_checkpoints(checkpoints).values():  # verl could not make its folder there
        if not path.is_dir():
            said.append(f"{path} is no folder, and is set aside as {set_aside(path).name}")
    folders, whole = step_folders(checkpoints), 0
    for step in sorted(folders, reverse=True):
        folder = folders[step]
        if noted in folders and step > noted and _older(folder / layout.last, checkpoints / TRACKER):
            said.append(
                f"checkpoint of step {step} is older than that of step {noted}, the last one, and of another training; "
                f"it is set aside as {set_aside(folder).name}"
            )
        elif (fault := broken(folder, contents, layout)) is None:
            whole = step
            break
        elif saved := _saved_otherwise([folder, *folders.values()], contents, layout):
            raise PreflightError(
                f"{folder} was saved with {', '.join(saved)} alone, and this start asks for {', '.join(contents)} "
                "(checkpoint.save_contents). Ask for what it has, or start over with trainer.resume_mode=disable."
            )
        elif alone and step > noted and not folder.is_symlink() and not os.path.lexists(folder / layout.last):
            # verl was writing it
            said.append(f"checkpoint of step {step} is not whole and is removed: {fault}")
            shutil.rmtree(folder, ignore_errors=True)
        else:
            said.append(f"checkpoint of step {step} is not whole and is set aside as {set_aside(folder).name}: {fault}")
    if whole != noted or (not whole and (checkpoints / TRACKER).exists()):
        said.append(f"{TRACKER} said {noted or 'nothing'} and now says {whole or 'nothing'}")
        if whole:
            write_atomic(checkpoints / TRACKER, str(whole))
        else:
            (checkpoints / TRACKER).unlink(missing_ok=True)
    if whole:
        return [*said, f"from the checkpoint of step {whole}"]
    return [*said, "no whole checkpoint is left: from the start model"] if folders else said


def _saved_otherwise(folders: list[Path], contents: list[str], layout: Layout) -> list[str]:
    """What the first checkpoint was saved with, where none of them has something of `contents`; empty for any other."""
    has = [content for content in contents if any(_has(folder / layout.parts[0], content) for folder in folders)]
    return has if has != contents and "model" in has and broken(folders[0], has, layout) is None else []


def _has(model: Path, content: str) -> bool:
    if content == "hf_model":
        return (model / "huggingface" / "config.json").exists()
    return content not in PARTS or any(model.glob(f"{PARTS[content]}_world_size_*"))


def _older(path: Path, than: Path) -> bool:
    """Whether a file is there and was written before another one."""
    return path.exists() and path.stat().st_mtime_ns < than.stat().st_mtime_ns
