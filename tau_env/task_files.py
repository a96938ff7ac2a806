"""Reads tasks and databases of domains that tau2-bench keeps as JSON: retail and airline."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from interaction.call import make_call
from tau_env.domain import Action, Side, Story, Task
from tau_env.records import Record
from tau_env.source import SourceError, read

DEFAULT_BASIS = ("DB", "COMMUNICATE")
"""What tau2-bench rewards where a task does not say."""


def load_tasks(domain: str) -> tuple[Task, ...]:
    """All tasks of a domain, in the order of its file.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    return tuple(_task(domain, row) for row in json.loads(read(f"domains/{domain}/tasks.json")))


def _task(domain: str, row: Mapping[str, Any]) -> Task:
    if row.get("initial_state"):
        raise SourceError(f"{domain} task {row['id']} changes the database before it begins, which is not known here")
    criteria = row["evaluation_criteria"]
    return Task(
        domain=domain,
        number=row["id"],
        category=domain,
        story=story_of(row),
        setup=(),
        gold=tuple(map(gold_of, criteria["actions"] or ())),
        assertions=(),
        communicate=tuple(criteria["communicate_info"] or ()),
        basis=tuple(criteria.get("reward_basis") or DEFAULT_BASIS),
        ticket=row.get("ticket") or "",
    )


def story_of(row: Mapping[str, Any]) -> Story:
    """What the user of a task knows and wants."""
    scenario = row["user_scenario"]
    told = scenario["instructions"]
    return Story(
        reason=told["reason_for_call"],
        known=told.get("known_info") or "",
        unknown=told.get("unknown_info") or "",
        instructions=told["task_instructions"],
        persona=scenario.get("persona") or "",
    )


def gold_of(row: Mapping[str, Any]) -> Action:
    """A call of gold."""
    compare = row.get("compare_args")
    side: Side = "user" if row.get("requestor") == "user" else "agent"
    return Action(side, make_call(row["name"], row["arguments"]), None if compare is None else tuple(compare))


def load_records(domain: str) -> tuple[str, dict[str, dict[str, Record]]]:
    """The identity of a domain's database, and its tables as the file has them: to be taken apart by the caller.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    content = read(f"domains/{domain}/db.json.gz")
    return hashlib.sha256(content).hexdigest(), json.loads(content)


class Each:
    """The shape of an object whose keys are names: every value has this shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


def shaped(value: Any, shape: Any) -> Any:
    """A value as pydantic would load and write it again.

    A shape is None (as it is), a type (converted to it, unless null), `[shape]`, `Each(shape)`, or a dict of fields in
    their order: those that are missing become null, those that are not named are left out. `(key, {value: shape})`
    chooses a shape by a field.
    """
    if shape is None or value is None:
        return value
    if isinstance(shape, type):
        return shape(value)
    if isinstance(shape, list):
        return [shaped(item, shape[0]) for item in value]
    if isinstance(shape, Each):
        return {key: shaped(item, shape.shape) for key, item in value.items()}
    if isinstance(shape, tuple):
        key, shapes = shape
        shape = shapes[value[key]]
    return {key: shaped(value.get(key), kind) for key, kind in shape.items()}
