"""What agent and user say to each other, and what somebody who plays the user is told.

A user who is played by a language model writes a call on its own device as `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`. That is data, like all it says: read as JSON within bounds, never evaluated.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from interaction.call import MAX_CHARS, Call, CallError, make_call
from interaction.environment import GoldMessage, UserWords
from tau_env import source
from tau_env.domain import Domain, Task

Mode = Literal["solo", "user"]

STOP = "###STOP###"
ENDS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")
"""Marks in a user's words that end the conversation."""
DONE = "done"
"""The function that ends an episode without a user."""
HAND_OVER = "transfer_to_human_agents"

GREETING = "Hi! How can I help you today?"
"""What the agent is taken to have said before the user's first words; tau2-bench's own."""
OPEN, CLOSE = "<tool_call>", "</tool_call>"


def spoken(words: str) -> str:
    """A user's words without calls on its device, begun or whole."""
    return re.sub(rf"{OPEN}.*?(?:{CLOSE}|\Z)", " ", words, flags=re.DOTALL).strip()


def device_call(words: str) -> Call:
    """The call that a user's words have after `OPEN`.

    Raises:
        CallError: what stands there is no call.
    """
    body, closed, after = words.partition(OPEN)[2].partition(CLOSE)
    if not closed or OPEN in after:
        raise CallError("one call between the tags was expected")
    try:
        found: Any = json.loads(body[:MAX_CHARS])
    except (ValueError, RecursionError) as error:
        raise CallError(f"the call is no JSON: {error}") from error
    if not isinstance(found, dict) or not found.keys() <= {"name", "arguments"}:
        raise CallError("a call is an object with name and arguments")
    return make_call(found.get("name"), found.get("arguments"))  # type: ignore[arg-type]


def written(call: Call) -> str:
    """A call as a user writes it."""
    return f"{OPEN}{json.dumps({'name': call.name, 'arguments': call.arguments})}{CLOSE}"


def gold_of(task: Task, mode: Mode) -> Iterator[GoldMessage | UserWords]:
    """The task's own calls, each in a message; with a user, what both sides say for them to be made."""
    if mode == "user":
        yield UserWords(task.story.reason)
    for action in task.gold:
        if mode == "solo" or action.side == "agent":
            yield GoldMessage(calls=(action.call,))
            if action.call.name == HAND_OVER:
                return
        else:
            yield GoldMessage(answer=f"Please do this on your phone: {action.call}")
            yield UserWords(written(action.call))
            yield UserWords("I have done that.")
    if mode == "solo":
        yield GoldMessage(calls=(Call(DONE, {}),))
    else:
        yield GoldMessage(answer=" ".join(["That is done.", *task.communicate]))
        yield UserWords(STOP)


def instructions(domain: Domain, task: Task) -> dict[str, str]:
    """The system message of the model that plays the user: tau2-bench's guidelines, the story, and its functions.

    Raises:
        SourceError: the guidelines are missing or not the pinned ones.
    """
    functions, story = domain.functions("user"), task.story
    name = "simulation_guidelines_tools.txt" if functions else "simulation_guidelines.txt"
    parts = {
        "Persona": story.persona,
        "Reason for call": story.reason,
        "Known info": story.known,
        "Unknown info": story.unknown,
        "Task instructions": story.instructions,
    }
    scenario = "\n".join(f"{name}: {text}" for name, text in parts.items() if text)
    text = f"{source.read(f'user_simulator/{name}').decode()}\n\n<scenario>\n{scenario}\n</scenario>"
    if functions:
        documented = "\n".join(json.dumps(item, separators=(",", ":")) for item in functions)
        text += (
            "\n\n<tools>\nTo make a tool call on your device, write nothing but "
            f'{OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE} with one of these functions; the answer comes as the '
            f"next message, and the agent sees neither:\n{documented}\n</tools>"
        )
    return {"role": "system", "content": text}
