"""Reads telecom's 2,285 tasks once, into little: most of the file's 14 MB are repetitions of some dozens of values."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from interaction.call import Call
from tau_env import source
from tau_env.domain import Action, Assertion, Side, Task
from tau_env.task_files import DEFAULT_BASIS, gold_of, story_of

_FAMILIES = {
    "mobile_data_issue": "telecom_mobile",
    "mms_issue": "telecom_mms",
    "service_issue": "telecom_service",
}
_BETWEEN = re.compile(r"[\s,\]]*")
_SIDES: dict[str, Side] = {"assistant": "agent", "user": "user"}


@cache
def load_tasks() -> tuple[Task, ...]:
    """All tasks in the order of the file. Equal parts of them are one object; nobody may change their arguments."""
    shared: dict[str, Any] = {}
    return tuple(_task(raw, shared) for raw in _records(source.read("domains/telecom/tasks.json.gz").decode()))


def faults(task: Task) -> tuple[str, ...]:
    """What is broken, as the task's id says."""
    return tuple(task.number.partition("]")[2].partition("[")[0].split("|"))


def _records(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list one by one: all at once they are 80 MB, much of which the process would keep."""
    decoder, start = json.JSONDecoder(), text.index("[") + 1
    while (start := _BETWEEN.match(text, start).end()) < len(text):  # type: ignore[union-attr]
        record, start = decoder.raw_decode(text, start)
        yield record


def _task(raw: dict[str, Any], shared: dict[str, Any]) -> Task:
    criteria = raw["evaluation_criteria"]

    def share(part: Any) -> Any:
        return shared.setdefault(repr(part), part)

    return Task(
        domain="telecom",
        number=raw["id"],
        category=_FAMILIES[raw["id"][1:].partition("]")[0]],
        story=share(story_of(raw)),
        setup=tuple(
            share(Action(_SIDES[each["env_type"]], Call(each["func_name"], each["arguments"])))
            for each in raw["initial_state"]["initialization_actions"] or ()
        ),
        gold=tuple(share(gold_of(each)) for each in criteria["actions"] or ()),
        assertions=tuple(
            share(Assertion(_SIDES[each["env_type"]], each["func_name"], each["arguments"], each["assert_value"]))
            for each in criteria["env_assertions"] or ()
        ),
        communicate=tuple(criteria["communicate_info"] or ()),
        basis=share(tuple(criteria.get("reward_basis") or DEFAULT_BASIS)),
        ticket=share(raw["ticket"]),
    )
