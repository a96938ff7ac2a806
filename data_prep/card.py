"""The data card: README.md beside the files, with metadata that the hub reads and what a person has to know."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from data_prep.rows import replacing

CARD = "README.md"
MARK = "<!-- written by data_prep; without this line it is yours, and stays as it is -->"

LICENCES = {"bfcl": "apache-2.0", "bfcl_single": "apache-2.0", "tau": "mit"}
"""Environment -> licence of what its rows hold."""

ORIGINS = {
    "bfcl": "Tasks, gold answers and function documentation are those of the Berkeley Function Calling Leaderboard "
    "(Patil, Mao et al., UC Berkeley, Apache-2.0), multi-turn. Scenarios are split by index, one set for all four "
    "categories: of a scenario to train on no variant is held out. **Whoever trains on the files for training has "
    "no clean score on BFCL's multi-turn categories any more**, but on the held-out files.",
    "bfcl_single": "Tasks, gold answers and function documentation are those of the Berkeley Function Calling "
    "Leaderboard (Patil, Mao et al., UC Berkeley, Apache-2.0), single-turn. About half of them are for training: "
    "its score on all of them is no clean number after that.",
    "tau": "Tasks, policies and databases are those of tau2-bench (Sierra Research, MIT).",
}
"""Environment -> where its tasks come from, and what training on them costs."""

COLUMNS = (
    "Files for training and validation have a row a task: `data_source` (environment/category), `prompt` (what the "
    "conversation begins with, in the protocol's words), `reward_model.ground_truth` (gold's calls of each user "
    "turn, as JSON) and `extra_info` (environment, task, category, and whether it is a train, dev or "
    "test task). Conversations are played when they are trained on; they do not stand here. Files of "
    "conversations have `messages`, gold's own, for supervised training."
)
USES = {
    "train": ("train", "training"),
    "val": ("validation", "validation, held out"),
    "sft": ("train", "supervised training"),
}
"""Kind of a file -> its split on the hub, and what it is for."""


def write_card(out: Path, manifest: Mapping[str, Any], kinds: Mapping[str, str], known: Sequence[str]) -> None:
    """Write the card into a folder with data, unless a README.md of somebody else's stands there.

    Args:
        manifest: as `data_prep.build` writes it.
        kinds: file -> `train`, `val` or `sft`.
        known: the environments whose tasks stand in the files.

    Raises:
        OSError: it cannot be written.
    """
    path = out / CARD
    if not path.exists() or MARK in path.read_text(encoding="utf-8", errors="replace"):
        with replacing(path) as partial:
            partial.write_text(data_card(manifest, kinds, known), encoding="utf-8")


def data_card(manifest: Mapping[str, Any], kinds: Mapping[str, str], known: Sequence[str]) -> str:
    """The text of the card, metadata first."""
    files: Mapping[str, Mapping[str, Any]] = manifest["files"]
    licences = {LICENCES.get(name) for name in known}
    rows = sum(int(entry["rows"]) for entry in files.values())
    metadata = {
        **({"license": licences.pop()} if len(licences) == 1 and None not in licences else {}),
        **({"language": ["en"]} if {*known} <= ORIGINS.keys() else {}),
        "task_categories": ["text-generation"],
        "tags": ["function-calling", "tool-use", "multi-turn", "verl", "bfcl-grpo", *known],
        "size_categories": ["n<1K" if rows < 1000 else "1K<n<10K" if rows < 10_000 else "10K<n<100K"],
        "configs": [
            {"config_name": Path(name).stem, "data_files": [{"split": USES[kinds[name]][0], "path": name}]}
            for name, entry in files.items()
            if entry["rows"]
        ],
    }
    table = [
        f"| {name} | {USES[kinds[name]][1]} | {entry['rows']} | `{entry['sha256']}` |" for name, entry in files.items()
    ]
    origins = [ORIGINS[name] for name in known if name in ORIGINS]
    if others := [name for name in known if name not in ORIGINS]:
        origins.append(f"Tasks of {', '.join(others)} are of whoever made them: state their source and licence.")
    parts = [
        f"# Tasks for multi-turn function calling: {', '.join(known)}",
        MARK,
        "Made with bfcl-grpo for training with [verl](https://github.com/volcengine/verl). The same command writes "
        f"the same bytes:\n\n    {' '.join(manifest['command'].split())}",
        "## Files\n\n| file | use | rows | SHA-256 |\n| --- | --- | --- | --- |\n" + "\n".join(table),
        f"{COLUMNS} Prompts are those of the protocol `{manifest['protocol']}`, functions are described as "
        f"`{manifest['docs']}`: a model that is to read others needs data of its own. `manifest.json` has "
        f"what the files were made from.",
        "## Source and licence\n\n" + "\n\n".join(origins),
    ]
    head = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n\n".join(parts) + "\n"
