"""BFCL's single-turn tasks as an environment of its own, `bfcl_single`: one message, judged against accepted calls."""

from collections.abc import Mapping

from bfcl_env.leaderboard.averages import averages, missing
from bfcl_env.single_turn.tasks import load_tasks, made_from

__all__ = ["audit_known", "leaderboard_averages", "load_tasks", "made_from"]


def audit_known() -> Mapping[str, str]:
    """What an audit finds here and need not say again, with reasons."""
    from bfcl_env.single_turn import audit

    return audit.known(load_tasks())


def leaderboard_averages(accuracies: Mapping[str, tuple[float, int]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """BFCL's averages of accuracies by category, those of the multi-turn tasks among them, and what they lack."""
    return averages(accuracies), missing(accuracies)
