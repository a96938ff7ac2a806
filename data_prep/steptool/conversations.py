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
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from data_prep.steptool.trajectories import BadFile, Text, checked
from interaction import get_protocol
from interaction.protocol.calls import unique_keys

PROTOCOL = "toolbench"
FOLLOWS: dict[str, tuple[str | None, ...]] = {
    "system": (None,),
    "user": (None, "system", "user", "assistant", "function"),
    "assistant": ("user", "function"),
    "function": ("assistant",),
}
"""Role -> the roles that it may follow; None at the beginning."""


class _Message(BaseModel):
    role: Literal["system", "user", "assistant", "function"] = Field(alias="from")
    value: Text


class _Instance(BaseModel):
    model_config = ConfigDict(strict=True)

    id: Text
    conversations: list[_Message]

    @field_validator("conversations")
    @classmethod
    def _in_order(cls, messages: list[_Message]) -> list[_Message]:
        before: str | None = None
        for number, message in enumerate(messages):
            if before not in FOLLOWS[message.role]:
                raise ValueError(f"message {number}: {message.role} follows {before or 'nothing'}")
            if message.role == "assistant":
                parsed = get_protocol(PROTOCOL).parse(message.value)
                if parsed.error is not None:
                    detail = f"{parsed.error} ({parsed.detail})"
                    raise ValueError(f"message {number}: not in the form of {PROTOCOL}: {detail}")
            before = message.role
        if before != "assistant":
            raise ValueError("does not end with the assistant: nothing to learn at the end")
        return messages


class _Query(BaseModel):
    id: Text
    instances: list[Any] = Field(min_length=1)


def conversations(text: str) -> Iterator[dict[str, Any] | list[str]]:
    """Each instance in the form of SFT_SCHEMA, or what is wrong with it.

    Raises:
        BadFile: it is not JSON, or not an object of queries.
    """
    try:
        queries = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"the file is not JSON: {str(error)[:200]}") from None
    if not isinstance(queries, dict):
        raise BadFile("the file is no object of queries")
    for name, entry in queries.items():
        row = f"query {name[:60]!r}"
        query = checked(_Query, {**entry, "id": name} if isinstance(entry, dict) else {"id": name}, row)
        if isinstance(query, list):
            yield query
            continue
        for number, values in enumerate(query.instances):
            instance = checked(_Instance, values, f"{row}, instances[{number}]")
            if isinstance(instance, list):
                yield instance
                continue
            messages = [
                {"role": "user" if one.role == "function" else one.role, "content": one.value.strip()}
                for one in instance.conversations
            ]
            yield {"messages": messages, "task_id": f"{name}/{instance.id}", "query_id": name}
