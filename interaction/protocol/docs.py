"""Function documentation as text, one function a line.

Written compactly on purpose: with indentation and response schemas some BFCL prompts do not fit 8192 tokens.
A JSON line needs about half of the characters of BFCL's own indented form, a signature about a twentieth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

DocStyle = Literal["json", "signature"]
DOC_STYLES: tuple[str, ...] = get_args(DocStyle)

_TYPE_NAMES = {"string": "str", "integer": "int", "boolean": "bool", "array": "list", "number": "float"}
_SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def compact_json(value: Any) -> str:
    """JSON without spaces, with non-ASCII characters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_line(function: dict[str, Any]) -> str:
    """Name, description and parameters as one line of JSON; the response schema is left out."""
    return compact_json({key: function[key] for key in ("name", "description", "parameters") if key in function})


def openai_tool(function: dict[str, Any]) -> dict[str, Any]:
    """The function as `tools=` of a chat template or an OpenAI endpoint takes it, types named as in JSON Schema.

    BFCL says "dict" and "float" where JSON Schema says "object" and "number".
    """
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function.get("description", ""),
            "parameters": _json_schema(function.get("parameters", {"type": "dict", "properties": {}})),
        },
    }


def _json_schema(schema: Any) -> Any:
    if isinstance(schema, bool):  # JSON Schema's words for anything, and for nothing
        return schema
    result = dict(schema)
    if "type" in schema:
        result["type"] = _SCHEMA_TYPES.get(schema["type"], schema["type"])
    if "properties" in schema:
        result["properties"] = {name: _json_schema(value) for name, value in schema["properties"].items()}
    if "items" in schema:
        result["items"] = _json_schema(schema["items"])
    return result


def signature_line(function: dict[str, Any]) -> str:
    """`name(a: str, b: int = 10)`: names and types only, no descriptions.

    Defaults are written as JSON because arguments are; BFCL writes "no default" as the text "None".
    """
    parameters = function.get("parameters", {})
    required = parameters.get("required", ())
    parts = []
    for name, given in parameters.get("properties", {}).items():
        schema = {} if isinstance(given, bool) else given
        part = f"{name}: {_type_name(schema)}"
        if name not in required:
            default = schema.get("default")
            part += f" = {compact_json(None if default == 'None' else default)}"
        parts.append(part)
    return f"{function['name']}({', '.join(parts)})"


def _type_name(schema: dict[str, Any]) -> str:
    name = schema.get("type", "any")
    if name == "array" and "type" in schema.get("items", {}):
        return f"list[{_type_name(schema['items'])}]"
    return _TYPE_NAMES.get(name, name)


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {"json": json_line, "signature": signature_line}


def render_docs(functions: Iterable[dict[str, Any]], style: DocStyle) -> str:
    """The documentation of `functions`, one a line."""
    return "\n".join(map(_LINES[style], functions))
