"""What somebody who plays the user is told: tau2-bench's guidelines, the story, and the functions of its device."""

import json
from functools import cache

from tau_env import source
from tau_env.domain import Domain, Story, Task
from tau_env.exchange import CLOSE, OPEN

GREETING = "Hi! How can I help you today?"
"""What the agent is taken to have said before the user's first words; tau2-bench's own."""


def instructions(domain: Domain, task: Task) -> dict[str, str]:
    """The system message of the model that plays the user."""
    text = f"{_guidelines(bool(domain.functions('user')))}\n\n<scenario>\n{scenario(task.story)}\n</scenario>"
    if domain.functions("user"):
        text += f"\n\n{_device(domain)}"
    return {"role": "system", "content": text}


def scenario(story: Story) -> str:
    """The story, in the order of tau2-bench's."""
    parts = {
        "Persona": story.persona,
        "Reason for call": story.reason,
        "Known info": story.known,
        "Unknown info": story.unknown,
        "Task instructions": story.instructions,
    }
    return "\n".join(f"{name}: {text}" for name, text in parts.items() if text)


@cache
def _guidelines(tools: bool) -> str:
    name = "simulation_guidelines_tools.txt" if tools else "simulation_guidelines.txt"
    return source.read(f"user_simulator/{name}").decode()


def _device(domain: Domain) -> str:
    documented = "\n".join(json.dumps(dict(item), separators=(",", ":")) for item in domain.functions("user"))
    return (
        "<tools>\nTo make a tool call on your device, write nothing but "
        f'{OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE} with one of these functions; the answer comes as the next '
        f"message, and the agent sees neither:\n{documented}\n</tools>"
    )
