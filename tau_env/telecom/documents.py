"""What the agent reads: the functions' documentation and the policy, both upstream's own words."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tau_env import source
from tau_env.domain import PolicyKind, Side

_FILES: dict[Side, str] = {"agent": "agent_functions.json", "user": "device_functions.json"}

DONE: dict[str, Any] = {
    "name": "done",
    "description": "Call this function when you are done with the task.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}
"""Ends an episode without a user. The environment's own: no database knows it."""


@cache
def functions(side: Side) -> tuple[dict[str, Any], ...]:
    """Documentation (name, description, parameters as a JSON schema) of the functions of one side."""
    return tuple(json.loads((Path(__file__).parent / _FILES[side]).read_text(encoding="utf-8")))


@cache
def policy(kind: PolicyKind, solo: bool) -> str:
    """The rules, with the manual of technical support (`full`) or its flow chart (`workflow`).

    The manual is the same without a user: upstream has none of its own for that.
    """
    if kind == "none":
        return ""
    main = "main_policy_solo.txt" if solo else "main_policy.txt"
    workflow = "tech_support_workflow_solo.txt" if solo else "tech_support_workflow.txt"
    support = workflow if kind == "workflow" else "tech_support_manual.txt"
    rules, guide = (source.read(f"domains/telecom/{name}").decode() for name in (main, support))
    return f"<main_policy>\n{rules}\n</main_policy>\n<tech_support_policy>\n{guide}\n</tech_support_policy>"
