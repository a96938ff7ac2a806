"""What the names in the audit's table stand for, below it and in `--help`."""

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

from recipe.audit.policies import CUT, POLICIES, cuts
from recipe.typed import one_line

REWARDS = {
    "format": "rewards/format.py, of stage 1: well-formed messages, calls that work, turns that pass; 0 to 2",
    "progress": "rewards/progress.py: turns passed of all turns, or 1 for an episode that is judged as a whole",
    "step": "rewards/step.py, after StepTool: each step by success and contribution",
    "all_or_nothing": "rewards/all_or_nothing.py: 1 if everything passed, else 0",
    "outcome official": "rewards/outcome.py, rule=official: 1 if passed by the rule of the environment's source",
    "outcome clean": "rewards/outcome.py, rule=clean: 1 if passed by the environment's own rule; of tau officially, "
    "and without a write that the task did not need",
    "outcome priced": "rewards/outcome.py, rule=priced: official, less 0.1 for each write that the task did not need",
}
"""Rows."""

WIDTH = 120


def legend(rewards: Iterable[str], columns: Iterable[str], own: Mapping[str, Any]) -> str:
    """A paragraph for each name.

    Args:
        own: the environment's policies by name; what one does is the first line of its docstring.
    """
    policies = POLICIES | {CUT: cuts}
    found = {name: REWARDS[name] for name in rewards if name in REWARDS}
    found |= {name: _first(policies.get(name) or own.get(name)) for name in columns}
    width = max(map(len, found), default=0) + 2
    lines = []
    for name, said in found.items():
        first, *more = wrap(said, WIDTH - width) or ["a policy of the environment's (AUDIT_POLICIES)"]
        lines += [name.ljust(width) + first, *(" " * width + line for line in more)]
    return "\n".join(lines)


def _first(policy: Any) -> str:
    """The first paragraph of what a function says of itself; of the user's it may be anything."""
    said = getattr(policy, "__doc__", None)
    return one_line(said.strip().partition("\n\n")[0]).rstrip(".") if isinstance(said, str) else ""
