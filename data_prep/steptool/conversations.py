"""StepTool's SFT JSON: conversations by query, in ToolBench's message form.

    {"10012": {"cnt": 1, "instances": [{"id": "Step 2: ...", "conversations": [
        {"from": "system", "value": "..."}, {"from": "user", "value": "..."},
        {"from": "assistant", "value": "Thought: ...\\nAction: ...\\nAction Input: {}"}]}]}}

Every instance becomes a row, as StepTool trains on them: of one query there are often several that begin alike and end
one message later each. Results ("function") become messages of the user, as our `toolbench` protocol gives them, and
each message of the model is one that this protocol reads.
"""

import json
from collections.abc import Iterator
from typing import Any

from data_prep.steptool.mistakes import BadFile, Mistake, fault_of, shown
from interaction import get_protocol
from interaction.protocol.calls import unique_keys

ROLES = {"system": "system", "user": "user", "assistant": "assistant", "function": "user"}
PROTOCOL = "toolbench"


def conversations(text: str) -> Iterator[dict[str, Any] | list[Mistake]]:
    """Each instance in the form of SFT_SCHEMA, or what is wrong with it.

    Raises:
        BadFile: it is not JSON, or not an object of queries.
    """
    try:
        queries = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"is not JSON: {shown(str(error))}") from None
    if not isinstance(queries, dict):
        raise BadFile(f"holds {shown(queries)}; expected an object of queries")
    for query, entry in queries.items():
        yield from _query(query, entry)


def _query(query: str, entry: Any) -> Iterator[dict[str, Any] | list[Mistake]]:
    row = f"query {shown(query)}"
    if fault := fault_of(query):
        yield [Mistake(row, "id", fault)]
        return
    instances = entry.get("instances") if isinstance(entry, dict) else None
    if not isinstance(instances, list) or not instances:
        yield [Mistake(row, "instances", f"found {shown(entry)}; expected a list of instances")]
        return
    if entry.get("cnt", len(instances)) != len(instances):
        yield [Mistake(row, "cnt", f"is {shown(entry['cnt'])}, and there are {len(instances)} instances")]
        return
    seen: set[str] = set()
    for number, instance in enumerate(instances):
        yield _instance(query, f"{row}, instances[{number}]", instance, seen)


def _instance(query: str, row: str, instance: Any, seen: set[str]) -> dict[str, Any] | list[Mistake]:
    """`seen` are the ids of the query's instances so far."""
    if not isinstance(instance, dict):
        return [Mistake(row, "id, conversations", f"found {shown(instance)}; expected one of each")]
    mistakes = []
    name = instance.get("id")
    if fault := fault_of(name):
        mistakes.append(Mistake(row, "id", fault))
    elif str(name) in seen:
        mistakes.append(Mistake(row, "id", f"{shown(name)} occurs twice in the query"))
    else:
        seen.add(str(name))
    spoken = instance.get("conversations")
    if not isinstance(spoken, list) or not spoken:
        mistakes.append(Mistake(row, "conversations", f"found {shown(spoken)}; expected a list of messages"))
        return mistakes
    roles: list[str] = []
    for number, message in enumerate(spoken):
        for field, fault in _faults(message, roles):
            mistakes.append(Mistake(row, f"conversations[{number}]{field}", fault))
        roles.append(message["from"] if isinstance(message, dict) and isinstance(message.get("from"), str) else "")
    if roles[-1] != "assistant":
        mistakes.append(Mistake(row, "conversations", "does not end with the assistant: nothing to learn at the end"))
    if mistakes:
        return mistakes
    messages = [{"role": ROLES[message["from"]], "content": message["value"].strip()} for message in spoken]
    return {"messages": messages, "task_id": f"{query}/{name}", "query_id": query}


def _faults(message: Any, before: list[str]) -> Iterator[tuple[str, str]]:
    """Field of a message, and what is wrong with it; `before` are the roles of those before it."""
    if not isinstance(message, dict):
        yield "", f"found {shown(message)}; expected from and value"
        return
    role, value = message.get("from"), message.get("value")
    if not isinstance(role, str) or role not in ROLES:
        yield ".from", f"{shown(role)} is no role; expected one of {', '.join(ROLES)}"
    elif role == "system" and before:
        yield ".from", "system stands at the beginning only"
    elif role == "function" and (not before or before[-1] != "assistant"):
        yield ".from", "function follows the assistant, whose call it answers"
    elif role == "assistant" and (not before or before[-1] in ("assistant", "system")):
        yield ".from", "the assistant follows the user or a function"
    if fault := fault_of(value):
        yield ".value", fault
    elif role == "assistant":
        parsed = get_protocol(PROTOCOL).parse(str(value))
        if parsed.error is not None:
            yield ".value", f"not in the form of {PROTOCOL}: {parsed.error} ({parsed.detail or shown(value)})"
