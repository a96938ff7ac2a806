"""The model that a training began with: its name, and the licence that its own card states."""

import re
from pathlib import Path
from typing import Any

import yaml

from recipe.cards.lineage import NEW_WEIGHTS
from recipe.cards.markdown import plain
from recipe.files import Damaged, read_text

CARD = "README.md"


def is_hub_id(model: str) -> bool:
    """Whether a model is named as on the hub, and is no folder here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", model)) and not Path(model).exists()


def name_of(start: str) -> str:
    """The model in a sentence; of a folder its own name, without those above it."""
    if Path(start).name == NEW_WEIGHTS:
        return "random weights"
    return f"[{start}](https://huggingface.co/{start})" if is_hub_id(start) else f"`{plain(Path(start).name)}`"


def licence_of(start: str) -> str | None:
    """That of the model it began with, as its own card says it."""
    if Path(start).name == NEW_WEIGHTS:
        return "apache-2.0"
    card = Path(start).expanduser() / CARD
    if is_hub_id(start):
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(start, CARD)
        card = Path(found) if isinstance(found, str) else card
    said = metadata(card).get("license")
    return said if isinstance(said, str) and re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,40}", said) else None


def metadata(card: Path) -> dict[str, Any]:
    """What stands between the first lines of a card, for the hub; empty where there is no card, or none that is one."""
    try:
        parts = read_text(card, 2**20).split("---\n", 2)
        found = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0] else None
    except (FileNotFoundError, Damaged, yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def licence_text(start: str) -> str:
    """What can be said about the licence of what was made of it."""
    if Path(start).name == NEW_WEIGHTS:
        return "Apache-2.0."
    if licence := licence_of(start):
        return f"{licence}, that of {name_of(start)}."
    return (
        f"That of {name_of(start)}, whose card is not here: **look it up, and set `license` in the first lines of "
        "this file before you publish the model.**"
    )
