"""A documented function as a method: what a library reads that makes a tool's schema from code.

transformers reads name, signature, type hints and a docstring with a line for each argument. What these cannot hold,
such as the fields of an object, is said in the argument's description. Whatever a model passes goes through unchecked:
the environment answers for it.
"""

import keyword
from collections.abc import Callable, Mapping, Set
from inspect import Parameter, Signature
from typing import Any, Literal

from interaction.protocol.docs import compact_json

TYPES = {"string": str, "integer": int, "float": float, "number": float, "boolean": bool, "dict": dict, "object": dict}


def method(document: Mapping[str, Any], taken: Set[str]) -> Callable[..., str]:
    """A method that hands its arguments to `self.call_function`.

    Args:
        document: name, description and parameters of the function, as environments have them.
        taken: names that methods of its class have.

    Raises:
        ValueError: no method can have this name, or this argument.
    """
    name, schema = str(document["name"]), document["parameters"]
    if name.startswith("_") or name in taken:
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
