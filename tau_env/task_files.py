"""Reads tasks as tau2-bench's files have them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from interaction.call import make_call
from tau_env.domain import Action, Assertion, Side, Story, Task
from tau_env.source import SourceError, read

DEFAULT_BASIS = ("DB", "COMMUNICATE")
"""What tau2-bench rewards where a task does not say."""
_SIDES: dict[str, Side] = {"assistant": "agent", "user": "user"}


def load_tasks(domain: str) -> tuple[Task, ...]:
    """All tasks of retail or airline, in the order of the file.

    Raises:
        SourceError: the file is missing or not the pinned one, or a task changes the database before it begins.
    """
    rows = json.loads(read(f"domains/{domain}/tasks.json"))
    if changing := [row["id"] for row in rows if row.get("initial_state")]:
        raise SourceError(f"{domain} tasks {changing} change the database before they begin, which is not known here")
    return tuple(task_of(domain, domain, row) for row in rows)


def task_of(
    domain: str, category: str, row: Mapping[str, Any], share: Callable[[Any], Any] = lambda part: part
) -> Task:
    """A task of a file; `share` may give an equal part of another task in place of each part."""
    criteria, scenario = row["evaluation_criteria"], row["user_scenario"]
    told = scenario["instructions"]
    story = Story(
        reason=told["reason_for_call"],
        known=told.get("known_info") or "",
        unknown=told.get("unknown_info") or "",
        instructions=told["task_instructions"],
        persona=scenario.get("persona") or "",
    )
    return Task(
        domain=domain,
        number=row["id"],
        category=category,
        story=share(story),
        setup=tuple(
            share(Action(_SIDES[each["env_type"]], make_call(each["func_name"], each["arguments"])))
            for each in (row.get("initial_state") or {}).get("initialization_actions") or ()
        ),
        gold=tuple(share(_gold_of(each)) for each in criteria["actions"] or ()),
        assertions=tuple(
            share(Assertion(_SIDES[each["env_type"]], each["func_name"], each["arguments"], each["assert_value"]))
            for each in criteria.get("env_assertions") or ()
        ),
        communicate=tuple(criteria["communicate_info"] or ()),
        basis=share(tuple(criteria.get("reward_basis") or DEFAULT_BASIS)),
        ticket=share(row.get("ticket") or ""),
    )


def _gold_of(row: Mapping[str, Any]) -> Action:
    compare = row.get("compare_args")
    side: Side = "user" if row.get("requestor") == "user" else "agent"
    return Action(side, make_call(row["name"], row["arguments"]), None if compare is None else tuple(compare))
