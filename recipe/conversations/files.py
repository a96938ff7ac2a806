"""Conversations read from files: lines of JSON as chat data sets and fine-tuning services have them, or parquet.

    {"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}], "id": "oslo-1"}

Nothing is guessed: what a model could not learn from as it stands, or would learn otherwise than it was meant, is a
mistake with its file, line and field. All files are read to their ends before anybody is told.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.steptool.mistakes import Mistake, fault_of, shown
from interaction.protocol import Message
from recipe.files import LONGEST_LINE, Damaged, lines
from recipe.preflight.data import check_whole, parquet_rows

ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user", "function": "user"}
"""Role in a file -> role in training. Results are messages of the user, as the protocols give them to the model in a
rollout; the text stays as it is."""

ENDINGS = (".jsonl", ".parquet")

MOST_MESSAGES = 10_000
"""Of a conversation."""
MOST_MISTAKES = 1_000
"""After which the rest of a file is not read."""

QUERY = ("query_id", "query", "task_id")
"""Fields that conversations of one query or task have in common, in whatever file."""
KEPT = ("tools", "enable_thinking")
"""Further columns of a parquet file that verl gives to the chat template. Lines of JSON have no one type for them."""
NOT_READ = ("tools", "functions")
"""Fields of a line that say what a model may call, and that no prompt is made of."""
CALLS = ("tool_calls", "function_call")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, in the roles that a chat template knows."""

    place: str
    """File, and line or row of it."""
    messages: tuple[Message, ...]
    queries: frozenset[tuple[str, ...]] = frozenset()
    """What it has in common with others of its query: each the name of a field, and what it says."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Further columns, for verl."""

    @property
    def same(self) -> str:
        """A short name of its messages, which only a conversation with the same ones has."""
        return _digest(self.messages)

    @property
    def opening(self) -> str:
        """The same of what comes before the model's first message: what is asked."""
        first = next(number for number, message in enumerate(self.messages) if message["role"] == "assistant")
        return _digest(self.messages[:first])


@dataclass
class Found:
    """What files hold."""

    conversations: list[Conversation] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    not_read: int = 0
    """Conversations with a field of NOT_READ."""


def read(path: Path) -> Found:
    """All conversations of a file, and all mistakes in it, as far as there are `MOST_MISTAKES`.

    Raises:
        FileNotFoundError: it is not there.
        Damaged: it cannot be read as a whole; the message names it and what was expected.
    """
    if path.suffix not in ENDINGS:
        raise Damaged(f"{path} has the ending {path.suffix!r}; expected {' or '.join(ENDINGS)}")
    check_whole(path)
    found = Found()
    for place, row in _of_parquet(path) if path.suffix == ".parquet" else _of_lines(path):
        if len(found.mistakes) >= MOST_MISTAKES:
            break
        if isinstance(row, str):
            found.mistakes.append(Mistake(place, "line", row))
            continue
        faults = [Mistake(place, *fault) for fault in _faults(row)]
        found.mistakes += faults
        if faults:
            continue
        messages = tuple({"role": ROLES[item["role"]], "content": item["content"]} for item in row["messages"])
        kept = {name: row[name] for name in KEPT if name in row} if path.suffix == ".parquet" else {}
        found.not_read += not kept and any(row.get(name) for name in NOT_READ)
        found.conversations.append(Conversation(place, messages, _queries(path, row), kept))
    return found


def _of_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(parquet_rows(path)):
        yield f"{path}, row {number}", row


def _of_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Place of each line that is not empty, and the object in it, or what is wrong with it."""
    for number, (_, line) in enumerate(lines(path), start=1):
        if len(line) >= LONGEST_LINE:
            raise Damaged(f"{path}, line {number} has {LONGEST_LINE} bytes or more; expected one conversation a line")
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except RecursionError:
            yield place, "is nested too deeply for a conversation"
        except ValueError as error:  # no UTF-8, no JSON, a number of thousands of digits
            yield place, f"is not JSON in UTF-8: {shown(str(error))}"
        else:
            yield place, row if isinstance(row, dict) else f"holds {shown(row)}; expected an object with messages"


def _faults(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field of a conversation, and what is wrong with it."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages", f"is {shown(messages)}; expected a list of messages"
        return
    if len(messages) > MOST_MESSAGES:
        yield "messages", f"are {len(messages)}; expected at most {MOST_MESSAGES}"
        return
    roles = [str(message.get("role")) if isinstance(message, dict) else None for message in messages]
    for number, message in enumerate(messages):
        for name, fault in _faults_of_message(number, message):
            yield f"messages[{number}]{name}", fault
    if "assistant" not in roles and all(role in ROLES for role in roles):
        yield "messages", "hold none of the assistant: there is nothing to learn"
    elif roles[0] == "assistant":
        yield "messages[0].role", "is assistant; expected a system or user message before it, which it answers"


def _faults_of_message(number: int, message: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(message, dict):
        yield "", f"is {shown(message)}; expected an object with role and content"
        return
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        yield ".role", f"is {shown(role)}; expected one of {', '.join(ROLES)}"
    elif role == "system" and number:
        yield ".role", "is system; expected at the beginning only"
    if calls := next((name for name in CALLS if message.get(name)), None):
        yield (
            f".{calls}",
            "is not read; expected the call as text in content, as the protocol writes it that the model is to learn",
        )
    elif isinstance(content, list):
        yield ".content", "is a list of parts; expected one text"
    elif fault := fault_of(content):
        yield ".content", f"{fault}; expected a text"
    if role == "assistant" and message.get("weight", 1) not in (1, None):
        yield (
            ".weight",
            f"is {shown(message['weight'])}; expected 1: all messages of the assistant are learned. End the "
            "conversation before this one, or leave it out",
        )


def _queries(path: Path, row: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    """`id` counts within its file: two files may both number their lines."""
    named = {(name, str(row[name])) for name in QUERY if isinstance(row.get(name), str | int) and row[name] != ""}
    own = row.get("id")
    return frozenset(named | ({("id", str(path), str(own))} if isinstance(own, str | int) and own != "" else set()))


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256(json.dumps([[item["role"], item["content"]] for item in messages]).encode()).hexdigest()
