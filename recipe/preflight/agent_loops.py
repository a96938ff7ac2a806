"""The file of agent loops, which verl reads in its workers: looked at before anything starts."""

import importlib.util
import re
from io import StringIO
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.files import Damaged, read_text
from recipe.typed import shown

SETTING = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
REMEDY = f"Set {SETTING} to a list as in recipe/config/agent_loops.yaml, or leave it out"
LARGEST = 2**16
"""Bytes of the file; a megabyte of YAML takes its parser seconds."""

INDIRECT = re.compile(r"\bimport\s*\*|\b__getattr__\b|\bglobals\(|\bsetattr\(|\bexec\(")
"""What gives a module names that do not stand in its text."""


def read_loops(path: Path) -> list[str]:
    """The names in a file of agent loops, whose classes are in modules that are there.

    Raises:
        PreflightError: it cannot be read, is no such list, or names a module that is not there.
    """
    try:
        entries: Any = OmegaConf.to_container(OmegaConf.load(StringIO(read_text(path, LARGEST))))
    except FileNotFoundError as error:
        raise PreflightError(f"{SETTING}={path} does not exist. {REMEDY}.") from error
    except Damaged as error:
        raise PreflightError(f"{SETTING}: {error}. {REMEDY}.") from error
    except Exception as error:  # YAML's, OmegaConf's, or too deep
        words = " ".join(str(error).split()) or type(error).__name__
        raise PreflightError(f"{SETTING}: {path} is not YAML that can be read: {words[:200]}. {REMEDY}.") from error
    if not entries or not isinstance(entries, list):
        raise PreflightError(f"{SETTING}: {path} holds {shown(entries)}; expected a list. {REMEDY}.")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "_target_")):
            raise PreflightError(
                f"{SETTING}: entry {number} of {path} is {shown(entry)}; expected name and _target_. {REMEDY}."
            )
        module, _, name = entry["_target_"].rpartition(".")
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        source = Path(found.origin) if found and found.origin and found.origin.endswith(".py") else None
        if found is None or (source and not _may_have(source, name)):
            raise PreflightError(
                f"{SETTING}: {path} names _target_ {shown(entry['_target_'])}, and there is no "
                f"{f'{name} in {source}' if source else f'module {shown(module)}'}. Put its folder on PYTHONPATH or "
                "correct the name."
            )
    return [entry["name"] for entry in entries]


def _may_have(source: Path, name: str) -> bool:
    """Whether a module may have something of that name. Its text is searched: to import it would import torch."""
    text = source.read_text(errors="replace")
    return bool(re.search(rf"\b{re.escape(name)}\b", text) or INDIRECT.search(text))
