"""Conversations as chat APIs write them, with `tools`, `tool_calls` and results: read as episodes are."""

import json
from collections.abc import Mapping
from typing import Any

from interaction.call import Call, make_call
from interaction.protocol import Protocol
from interaction.protocol.docs import documented

RESULTS = ("tool", "function")


def has_calls(row: Any) -> bool:
    """Whether a row has tools or calls beside its texts."""
    messages = row.get("messages") if isinstance(row, dict) else None
    said = [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    return bool(said) and bool(row.get("tools") or any(message.get("tool_calls") for message in said))


def as_texts(row: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    """The row in a protocol: its rules and the functions behind the row's own system message, calls and results.

    Raises:
        ValueError: it cannot be written so; says which message.
    """
    place, said, due = "tools", list[dict[str, Any]](), dict[Any, str | None]()
    try:
        functions = [documented(tool.get("function") or tool) for tool in row.get("tools") or ()]
        for number, message in enumerate(row["messages"]):
            place, role, content = f"messages[{number}]", message["role"], message.get("content")
            if (role in RESULTS) is not bool(due):
                raise ValueError(f"{role}; expected one result for each call, directly after them")
            if role in RESULTS:
                name = message.get("tool_call_id") or next(name for name, text in due.items() if text is None)
                if due[name] is not None or not isinstance(content, str):
                    raise ValueError(f"expected a text, and one result for call {name}")
                due[name] = content
                if None not in due.values():
                    said, due = [*said, *protocol.results([str(text) for text in due.values()])], {}
            elif role == "assistant":
                made = message.get("tool_calls") or ()
                due = {item.get("id") or at: None for at, item in enumerate(made)}
                text = _text(message, [_call(item["function"]) for item in made], protocol)
                said.append({"role": role, "content": text, "weight": message.get("weight")})
            else:
                said.append(dict(message))
        policy = said.pop(0)["content"] if said[0]["role"] == "system" else ""
        if said[0]["role"] != "user":
            place = "messages"
            raise ValueError("expected one of the user first, or a system message and then one of the user")
        begin = protocol.opening(functions, said[0]["content"], policy)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{place}: cannot be written in {protocol.name}: {why}"[:300]) from error
    return {**row, "messages": [*begin, *said[1:]], "tools": None}


def _call(function: Mapping[str, Any]) -> Call:
    """Raises ValueError for what is no call."""
    given = function.get("arguments")
    if isinstance(given, dict):  # a table has each row's fields in all rows
        given = {name: value for name, value in given.items() if value is not None}
    return make_call(function["name"], json.loads(given) if isinstance(given, str) else given)


def _text(message: Mapping[str, Any], calls: list[Call], protocol: Protocol) -> str:
    """A message of the model's. Raises ValueError for what the protocol cannot write."""
    content, thought = message.get("content") or "", message.get("reasoning_content") or ""
    if not calls:
        return protocol.render_answer(thought or content * protocol.gold_thinks, content)
    named = ", ".join(call.name for call in calls) * protocol.gold_thinks
    return protocol.render_calls(thought or content or named, calls)
