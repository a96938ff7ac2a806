"""Conversations as chat APIs write them, with `tools`, `tool_calls` and results: read as episodes are."""

import json
from collections.abc import Mapping
from typing import Any

from interaction.call import Call, make_call
from interaction.protocol import Protocol
from interaction.protocol.docs import documented

RESULTS = ("tool", "function")


def in_protocol(row: Any, protocol: Protocol, table: bool) -> tuple[Any, int | None]:
    """A row with tools or calls in the words of a protocol, and how many messages have more than it has a place for.

    Another row stays as it is, with None. `table` is one's where each row has the fields of all.

    Raises:
        ValueError: it cannot be written so, would be read otherwise, or is written in none; says which message.
    """
    messages = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        return row, None
    if row.get("tools") or row.get("functions") or any(item.get("tool_calls") for item in messages):
        return _as_texts(_without_nulls(row) if table else row, protocol)
    for number, message in enumerate(messages):
        text = message.get("content") if message.get("role") == "assistant" else None
        if isinstance(text, str) and (error := protocol.parse(text).error):
            raise ValueError(f"messages[{number}]: has no tool_calls, and is not written in {protocol.name}: {error}")
    return row, None


def _as_texts(row: Mapping[str, Any], protocol: Protocol) -> tuple[dict[str, Any], int]:
    """The row's own system message, rules and functions of the protocol, calls and results; as `in_protocol`."""
    place, said, due, before, cut = "tools", list[dict[str, Any]](), dict[Any, Call](), "", 0
    try:
        tools = row.get("tools") or row.get("functions") or ()
        tools = json.loads(tools) if isinstance(tools, str) else tools
        functions = [documented(tool.get("function") or tool) for tool in tools]
        names, results = {function["name"] for function in functions}, dict[Any, str]()
        for number, message in enumerate(row["messages"]):
            place, role = f"messages[{number}]", message["role"]
            content = _text(message.get("content"))
            if (role in RESULTS) is not bool(due) or (role == "user" and before in RESULTS):
                raise ValueError(f"{role} after {before or 'nothing'}; expected each call's result, then the assistant")
            if role in RESULTS:
                name = message.get("tool_call_id") or next(name for name in due if name not in results)
                if name not in due or name in results or message.get("name") not in (None, due[name].name):
                    raise ValueError(f"is no result of a call {name} that waits for one")
                results[name] = content
                if len(results) == len(due):
                    said += protocol.results([results[name] for name in due])
                    due, results = {}, {}
            elif role == "assistant":
                if message.get("function_call") or message.get("weight", 1) not in (1, None):
                    raise ValueError("expected tool_calls, no function_call, and a weight of 1")
                made = message.get("tool_calls") or ()
                due = {item.get("id") or at: _call(item["function"]) for at, item in enumerate(made)}
                if len(due) < len(made) or (names and not {call.name for call in due.values()} <= names):
                    raise ValueError("two of its calls have one id, or one is of no function in tools")
                thought = _text(message.get("reasoning_content") or message.get("reasoning"))
                text, lost = _written(thought, content, [*due.values()], protocol)
                said, cut = [*said, {"role": role, "content": text}], cut + lost
            else:
                said.append({"role": role, "content": content})
            before = role
        place = "messages"
        policy = said.pop(0)["content"] if said[0]["role"] == "system" else ""
        if said[0]["role"] != "user":
            raise ValueError("expected one of the user first, or a system message and then one of the user")
        begin = protocol.opening(functions, said[0]["content"], policy)
        return {**row, "messages": [*begin, *said[1:]], "tools": None, "functions": None}, cut
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{place}: cannot be written in {protocol.name}: {why}"[:300]) from error


def _without_nulls(value: Any) -> Any:
    """A table's row without what only other rows have."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _text(content: Any) -> str:
    """Raises ValueError for what is no text, such as a picture."""
    parts = [content or ""] if content is None or isinstance(content, str) else [part.get("text") for part in content]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("its content is no text")
    return "\n".join(map(str, parts)).strip()


def _call(function: Mapping[str, Any]) -> Call:
    """Raises ValueError for what is no call."""
    given = function.get("arguments") or {}
    return make_call(function["name"], json.loads(given) if isinstance(given, str) else given)


def _written(thought: str, words: str, calls: list[Call], protocol: Protocol) -> tuple[str, bool]:
    """A message of the model's, and whether the protocol had no place for all of it.

    Raises:
        ValueError: the protocol would read it otherwise.
    """
    beside = words
    if not calls:
        text = protocol.render_answer(thought or words * protocol.gold_thinks, words)
    elif protocol.gold_thinks:
        thought, beside = "\n".join(filter(None, [thought, words])) or ", ".join(call.name for call in calls), ""
        text = protocol.render_calls(thought, calls)
    else:
        bare, text = protocol.render_calls("", calls), protocol.render_calls(thought, calls)
        spoken = f"{text.removesuffix(bare)}{words}\n{bare}" if words else text
        text = text if protocol.parse(spoken).error else spoken
    found = protocol.parse(text)
    if found.calls != tuple(calls) or (not calls and found.answer != words):
        raise ValueError(f"it would be read otherwise ({found.error or 'other calls or words'})")
    return text, bool(thought and not found.thought) or bool(calls and beside != found.beside)
