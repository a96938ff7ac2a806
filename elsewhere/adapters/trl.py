"""An environment for TRL's `GRPOTrainer(environment_factory=...)`, where a model calls methods of a class as its tools.

TRL takes a task's tools from its class, so there is a class for each set of functions, and rows say which. It ends an
episode at the first message without a call: so the user is spoken to by a call as well (`answer_user`), and functions
that are announced on the way are called by name (`call_function`). Of a message TRL hands over call by call.
"""

import keyword
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature
from typing import Any, Literal

from gymnasium.error import ResetNeeded

from adapters import reward_of
from interaction.call import make_call
from interaction.environment import read_options
from interaction.gold import first_request
from interaction.gym_env import GymEnv, Reward
from interaction.protocol import get_protocol
from interaction.protocol.base import MAX_CALLS, RULES
from interaction.protocol.docs import compact_json, documented

MOST_CALLS = 20 * MAX_CALLS
"""In a turn, as 20 messages can hold where they are not taken apart; messages are `max_tool_calling_iterations`."""
OVER = "The conversation is over."
SPEAK = "Speak to the user with answer_user, and in no other way."
TAKEN = frozenset({"reset", "get_reward", "answer_user", "call_function", "reward"})
HERMES = get_protocol("hermes")
TYPES = {"string": str, "integer": int, "float": float, "number": float, "boolean": bool, "dict": dict, "object": dict}


def earned(environments: Iterable["Conversation"], **_: Any) -> list[float]:
    """The reward function: what training pays for each episode, also where the model left it in the middle."""
    return [environment.reward for environment in environments]


class Conversation:
    """Plays one episode after the other; its methods, and those that `environments` adds, are the tools."""

    _made: Callable[[], GymEnv]

    def __init__(self) -> None:
        self._env, self.reward = self._made(), 0.0

    def reset(self, task_id: str, **_: Any) -> str:
        """Begins an episode; gives the user's first request. Raises as `GymEnv.reset`."""
        _text, info = self._env.reset(options={"task_id": task_id})
        self.reward = 0.0
        return info["messages"][-1]["content"]

    def answer_user(self, text: str) -> str:
        """Answer the user's request once it is fulfilled; the next request follows.

        Args:
            text: What you say to the user.
        """
        return self._say(HERMES.render_answer("", text))

    def call_function(self, name: str, arguments: dict) -> str:
        """Call a function that was announced during the conversation.

        Args:
            name: Its name.
            arguments: Its arguments by name.
        """
        return self._say(HERMES.render_calls("", [make_call(name, arguments)]))

    def _say(self, message: str) -> str:
        try:
            _text, reward, terminated, truncated, info = self._env.step(message)
        except ResetNeeded as error:
            raise ValueError(OVER) from error  # TRL gives the model these words
        self.reward += reward
        said = OVER if terminated or truncated else info["messages"][0]["content"]
        return said.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")


def method(document: Mapping[str, Any]) -> Callable[..., str]:
    """A documented function as a method that hands its arguments to `self.call_function`.

    transformers makes a tool's schema from name, signature, type hints and a docstring with a line for each argument.
    What these cannot hold, such as the fields of an object, is said in the argument's description. Whatever a model
    passes goes through unchecked: the environment answers for it.

    Raises:
        ValueError: no method can have the function's name, or that of one of its arguments.
    """
    name, schema = str(document["name"]), documented(document)["parameters"]
    if name.startswith("_") or name in TAKEN:
        raise ValueError(f"function {name}: TRL has no tools of this name")

    def tool(self: Any, /, **arguments: Any) -> str:
        return self.call_function(name, arguments)

    tool.__annotations__ = {"return": str}
    lines, parameters = [], [Parameter("self", Parameter.POSITIONAL_ONLY)]
    for key, item in schema.get("properties", {}).items():
        if not key.isidentifier() or keyword.iskeyword(key):
            raise ValueError(f"function {name}: TRL has no tools with the argument {key!r}")
        default = Parameter.empty if key in schema.get("required", ()) else item.get("default")
        hint = tool.__annotations__[key] = _hint(item)
        parameters.append(Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        inside = f" Fields: {compact_json(item['properties'])}" if "properties" in item else ""
        lines.append(f"    {key}: {_line(item.get('description', key))}{inside}")
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = "\n".join([_line(document.get("description", name)), "", "Args:", *lines])
    tool.__signature__ = Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return tool


def _hint(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if schema.get("type") in ("array", "tuple"):
        return list[_hint(schema.get("items", {}))]  # type: ignore[misc]
    return TYPES.get(str(schema.get("type")), Any)


def _line(text: str) -> str:
    """In one line, and not ending as transformers' list of choices does."""
    return f"{' '.join(text.split())} ".replace("(choices:", "(one of:").rstrip() or "."


def environments(
    environment: str, reward: str | Reward = "progress", *, tasks: Collection[str] = (), **settings: Any
) -> tuple[dict[str, type[Conversation]], list[dict[str, Any]]]:
    """`environment_factory`, and the rows of a data set: `tasks`, or all to train on. Arguments are `GymEnv`'s.

    Raises:
        ValueError: as `GymEnv`, or the environment or one of its functions cannot be played through methods.
    """
    settings = {"max_steps_per_turn": MOST_CALLS, **settings}
    made = partial(GymEnv, environment, reward_of(reward), tasks=tuple(tasks), protocol="hermes", **settings)
    first, rows = made(), list[dict[str, Any]]()
    options = read_options(first.environment, settings.get("environments", {}).get(first.environment, {}))
    classes: dict[tuple[str, ...], type[Conversation]] = {}
    for task in first.tasks:
        request = first_request(task, **options)
        names = tuple(str(document["name"]) for document in request.functions)
        if names not in classes:
            tools = {str(document["name"]): method(document) for document in request.functions}
            title = f"{first.environment}_{len(classes)}"
            classes[names] = type(title, (Conversation,), {**tools, "_made": staticmethod(made)})
        system = "\n\n".join(filter(None, [request.policy, RULES, SPEAK]))
        prompt = [{"role": "system", "content": system}, {"role": "user", "content": ""}]
        rows.append({"prompt": prompt, "environment": classes[names].__name__, "task_id": task.id})
    return {kind.__name__: kind for kind in classes.values()}, rows
