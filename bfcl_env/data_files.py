"""Which of BFCL's tasks go into which file of a data set: those of the stages, or the small ones of the CPU demo."""

from collections.abc import Mapping
from typing import Any

from bfcl_env import demo_tasks
from bfcl_env.scenarios import Scenario, load_scenarios, split_seed, train_indices
from bfcl_env.source import DATA_SHA256, VERSION
from interaction.environment import DataSet

FORMAT_ROWS = 75
"""Stage 1 trains on the base tasks of the first 75 training indices as drawn."""


def data_sets(tiny: bool = False, options: Mapping[str, Any] | None = None) -> dict[str, DataSet]:
    """File -> its tasks; no option changes them.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    if tiny:
        chosen = demo_tasks.rl_tasks()
        return {
            "tiny_format.parquet": DataSet("train", chosen),
            "tiny_base.parquet": DataSet("train", chosen),
            "tiny_full.parquet": DataSet("train", demo_tasks.one_per_category(chosen)),
            "tiny_val.parquet": DataSet("val", demo_tasks.in_all_categories(demo_tasks.val_tasks())),
            "tiny_sft.parquet": DataSet("sft", demo_tasks.sft_conversations(), demo_tasks.MAX_RESULT_CHARS),
        }
    first = frozenset(train_indices()[:FORMAT_ROWS])
    base: tuple[Scenario, ...] = load_scenarios("multi_turn_base", split="train")
    train = load_scenarios(split="train")
    return {
        "train_format_75.parquet": DataSet("train", [item for item in base if item.index in first]),
        "bfcl_train_base.parquet": DataSet("train", base),
        "bfcl_train.parquet": DataSet("train", train),
        "bfcl_val.parquet": DataSet("val", load_scenarios(split="val")),
        "sft_train.parquet": DataSet("sft", train),
    }


def made_from() -> dict[str, Any]:
    """What the tasks were made from, for the manifest of a data set."""
    return {"seed": split_seed(), "bfcl_eval": VERSION, "data_sha256": DATA_SHA256}
