"""tau2-bench's domains as environments: a policy, tools on a database, and a user who talks back."""

from collections.abc import Mapping
from typing import Any

from tau_env.audit import AUDIT_POLICIES
from tau_env.environment import Options
from tau_env.tasks import data_sets, load_tasks, tasks_under

__all__ = [
    "AUDIT_POLICIES",
    "Options",
    "audit_known",
    "data_sets",
    "load_tasks",
    "made_from",
    "tasks_under",
    "turn_policy",
]


def made_from() -> dict[str, Any]:
    """What the tasks were made from, for the manifest of a data set."""
    from tau_env import source, tasks

    return {"seed": tasks.SEED, "tau2_data": source.made_from()}


def audit_known() -> Mapping[str, str]:
    """What an audit finds here and need not say again, with reasons."""
    from tau_env import audit

    return audit.known()


def turn_policy(options: Mapping[str, Any]) -> dict[str, Any]:
    """How an evaluation plays these tasks: 30 messages an episode; where the prompt has the rule, one call in each.

    tau2-bench's own split is played with its own limit (`DEFAULT_MAX_STEPS`), which counts everybody's messages.
    """
    only_one = bool(options.get("one_thing_a_message"))
    calls = {"calls_per_message": "first"} if only_one else {}
    official = {"max_messages": 200, "max_steps_per_turn": 100}
    limits = official if options.get("split") == "official" else {"max_steps": 30, "max_steps_per_turn": 30}
    return {**limits, "max_result_chars": 20_000, **calls}
