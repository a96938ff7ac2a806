"""The files of bfcl-eval that hold the single-turn tasks, pinned as those of the multi-turn ones are."""

from typing import Any

from bfcl_env.single_turn.categories import CATEGORIES
from bfcl_env.source import VERSION, lines_of, read_pinned

DATA_SHA256 = "cc94872bc0aea62b143e6a5fe485deeeec1489faf8091a673b20325e27cde8b4"
"""As `bfcl_env.source.DATA_SHA256`, of the files in `data_files()`."""


def data_files() -> tuple[str, ...]:
    """Paths of all files that are read, relative to bfcl-eval's data folder."""
    answered = [name for name, category in CATEGORIES.items() if category.wanted == "accepted"]
    return (*map(_questions, CATEGORIES), *map(_answers, answered))


def read_categories() -> dict[str, list[tuple[str, str]]]:
    """Category -> its tasks, each two texts of JSON: the entry (id, question, function), and BFCL's answer (id,
    ground_truth), empty where BFCL has none. In BFCL's order, which is the same in both files.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    contents = read_pinned(data_files(), DATA_SHA256)
    found = {}
    for name in CATEGORIES:
        entries = lines_of(contents[_questions(name)])
        answers = lines_of(contents[_answers(name)]) if _answers(name) in contents else [""] * len(entries)
        found[name] = list(zip(entries, answers, strict=True))
    return found


def made_from() -> dict[str, Any]:
    """What the tasks were made from, for the manifest of a data set."""
    from bfcl_env.single_turn.components import SEED

    return {"seed": SEED, "bfcl_eval": VERSION, "data_sha256": DATA_SHA256}


def _questions(category: str) -> str:
    return f"BFCL_v4_{category}.json"


def _answers(category: str) -> str:
    return f"possible_answer/BFCL_v4_{category}.json"
