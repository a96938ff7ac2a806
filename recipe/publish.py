"""Upload an exported model with its card to the Hugging Face hub.

    python -m recipe.publish outputs/default --dry-run                     # say what would be uploaded
    python -m recipe.publish outputs/default --repo-id me/my-model

RUN is a run, of which the stage that was started last is taken (of those that have ended), the folder of a stage, or a
model folder. The token is the one that `hf auth login` or HF_TOKEN gives to huggingface_hub. A new repository is
private: whether others may see it is decided on the hub, by a person who has read the card.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from recipe.cards.model_card import write_card
from recipe.cards.origin import CARD
from recipe.columns import aligned
from recipe.errors import PreflightError
from recipe.files import Damaged, read_text, told
from recipe.stage.integrity import broken_export
from recipe.stage.manifest import MANIFEST
from recipe.stage.notes import DONE, DONE_FILE
from recipe.typed import one_line, shown

LARGEST_CARD = 2**20
"""Bytes."""

UPLOADED = re.compile(
    r"(README|LICENSE|NOTICE)(\.md|\.txt)?|((generation_|adapter_|processor_|preprocessor_)?config|checksums)\.json"
    r"|(model|adapter_model)[\w-]*\.safetensors(\.index\.json)?|tokenizer[\w-]*\.(json|model)|\w+\.tiktoken"
    r"|(special_tokens_map|added_tokens|vocab)\.json|(vocab|merges)\.txt|chat_template\.(jinja|json)|spiece\.model"
)
"""Names of the files that a model consists of."""


@dataclass(frozen=True)
class Upload:
    """What would be uploaded."""

    folder: Path
    files: tuple[tuple[str, int], ...]
    """Name within the folder, and bytes."""
    notes: tuple[str, ...]
    """What a person should look at first."""


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.publish", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, of a stage, or of a model")
    parser.add_argument("--repo-id", metavar="NAME/MODEL", help="repository on the hub; made if it is not there")
    parser.add_argument("--dry-run", action="store_true", help="say what would be uploaded, and upload nothing")
    given = parser.parse_args(arguments)
    try:
        found = prepare(model_folder(given.run))
        print(_listed(found))
        if given.dry_run:
            print(f"dry run: nothing was uploaded{f' to {given.repo_id}' if given.repo_id else ''}")
            return 0
        if not given.repo_id:
            raise PreflightError("no repository named. Give --repo-id NAME/MODEL, or --dry-run to look only.")
        print(f"uploaded to {upload(found, given.repo_id)}")
    except PreflightError as error:
        print(f"not published: {error}", file=sys.stderr)
        return 1
    return 0


def model_folder(given: Path) -> Path:
    """The exported model of a run, of a stage, or the folder itself.

    Of a run that of the stage which its manifest has last, of those that have ended: the times of files are those of
    the latest copy.

    Raises:
        PreflightError: there is none, or the manifest does not say which of several.
    """
    if (given / "config.json").is_file():
        return given
    if (given / "hf" / "config.json").is_file():
        return given / "hf"
    done = [path for path in given.glob(f"*/{DONE_FILE}") if DONE.read_or_none(path) is not None]
    if not done:
        raise PreflightError(
            f"{given} has no exported model: expected {given}/<stage>/hf of a stage that has ended, {given}/hf, or a "
            "model folder with config.json. Give one of these."
        )
    manifest = MANIFEST.read_or_none(given / "manifest.json")
    started = [str(start.get("stage")) for start in (manifest.starts if manifest else ())]
    ended = {path.parent.name: path.with_name("hf") for path in done}
    if last := next((name for name in reversed(started) if name in ended), None):
        return ended[last]
    if len(ended) == 1:
        return next(iter(ended.values()))
    raise PreflightError(
        f"{given}/manifest.json does not say which of {', '.join(sorted(ended))} came last. Name one: {given}/<stage>."
    )


def prepare(folder: Path) -> Upload:
    """Check a model folder and its card, which is written where there is none, and list what it holds.

    Raises:
        PreflightError: the weights are not what was written, or the card is none that the hub would take.
    """
    if fault := broken_export(folder):
        raise PreflightError(f"{fault}. Export it again: start its stage once more.")
    notes = []
    if not (folder / CARD).is_file():
        if folder.name != "hf" or not (folder.parent / "config").is_dir():
            raise PreflightError(
                f"{folder} has no {CARD}, and is no stage's export of which one could be made. Write it."
            )
        try:
            write_card(folder.parent)
        except OSError as error:
            raise PreflightError(f"the card cannot be written: {told(error)}.") from error
        notes.append(f"{folder / CARD} was not there and has been written from what {folder.parent} says of itself")
    notes += check_card(folder / CARD)
    found = sorted(folder.iterdir())
    paths = [path for path in found if UPLOADED.fullmatch(path.name) and path.is_file() and not path.is_symlink()]
    if others := [path.name for path in found if path not in paths]:
        notes.append(f"left out, no file of a model or a link: {one_line(', '.join(others))}")
    return Upload(folder, tuple((path.name, path.stat().st_size) for path in paths), tuple(notes))


def check_card(path: Path) -> list[str]:
    """Parse a card as the hub's library does; what it lacks.

    Raises:
        PreflightError: it cannot be parsed.
    """
    from huggingface_hub import ModelCard

    try:
        data: Any = ModelCard(read_text(path, LARGEST_CARD)).data.to_dict()
    except (Damaged, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError, RecursionError) as error:
        raise PreflightError(
            f"{path} is no card that the hub takes: {one_line(error)}. Correct its first lines."
        ) from error
    lacks = []
    if not data.get("license"):
        lacks.append(f"{path} states no license: set that of the model it was trained from")
    if not data.get("base_model"):
        lacks.append(f"{path} names no base_model: set the one it was trained from, if that is on the hub")
    if not data.get("model-index"):
        lacks.append(f"{path} has no scores: the exported step was not validated")
    return lacks


def _listed(found: Upload) -> str:
    rows = [[name, size_text(size)] for name, size in found.files]
    total = size_text(sum(size for _, size in found.files))
    text = (
        f"{found.folder}\n{aligned([*rows, [f'{len(rows)} files', total]])}\nthe card can be read by the hub's library"
    )
    return "\n".join([text, *(f"NOTE {note}" for note in found.notes)])


def size_text(size: int) -> str:
    """Bytes for a person, in powers of ten as the hub has them."""
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_of:
            return f"{size / bytes_of:.1f} {unit}"
    return f"{size} B"


def upload(found: Upload, repo_id: str) -> str:
    """Upload the files to a repository, which is made (private) where there is none; its address.

    Raises:
        PreflightError: the hub cannot be reached, does not know the token, or refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import HFValidationError

    api = HfApi()
    try:
        url = api.create_repo(repo_id, private=True, exist_ok=True)
        api.upload_folder(
            repo_id=url.repo_id,
            folder_path=found.folder,
            allow_patterns=[name for name, _ in found.files],
            commit_message="Model trained with bfcl-grpo",
        )
    except HFValidationError as error:
        raise PreflightError(f"--repo-id {shown(repo_id, quote=False)}: {one_line(error)}. Give NAME/MODEL.") from error
    except Exception as error:  # of httpx and of the hub's library: no network, no token, no right, a full account
        raise PreflightError(
            f"the hub did not take it: {type(error).__name__}: {one_line(error)}. What is needed is a network "
            "(and no HF_HUB_OFFLINE), a token that may write (`hf auth login`, or HF_TOKEN) and the right to "
            f"{shown(repo_id, quote=False)}. Nothing here was changed; the same command goes on where it stopped."
        ) from error
    return str(url)


if __name__ == "__main__":
    sys.exit(main())
