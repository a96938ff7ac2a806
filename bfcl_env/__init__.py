"""BFCL's multi-turn tasks as a safe, per-turn judged environment.

Knows scenarios, calls and states; knows nothing of models, tokens or training. The tasks, the gold calls and
the eight executable classes come from the `bfcl-eval` package; its executor, which evaluates text, is not used.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bfcl_env.calls import parse_call
from bfcl_env.data_files import data_sets, made_from
from bfcl_env.environment import Options
from bfcl_env.episode import Episode, TurnVerdict
from bfcl_env.scenarios import (
    CATEGORIES,
    Scenario,
    Turn,
    load_scenarios,
    part_of,
    train_indices,
)
from interaction.call import Call, CallError, make_call
from interaction.outcome import ErrorKind, ToolResult

if TYPE_CHECKING:
    from bfcl_env.leaderboard.official import OfficialVerdict
    from interaction.record import EpisodeRecord


def judge_all(records: "Iterable[EpisodeRecord]") -> "Iterator[OfficialVerdict]":
    """BFCL's own verdict on each recorded conversation."""
    from bfcl_env.leaderboard import official  # here, because nothing else needs it

    return official.judge_all(records)


load_tasks = load_scenarios
"""The name under which `interaction.environment` looks for them."""

__all__ = [
    "CATEGORIES",
    "Call",
    "CallError",
    "Episode",
    "ErrorKind",
    "Options",
    "Scenario",
    "ToolResult",
    "Turn",
    "TurnVerdict",
    "data_sets",
    "load_scenarios",
    "load_tasks",
    "make_call",
    "parse_call",
    "part_of",
    "made_from",
    "train_indices",
]
