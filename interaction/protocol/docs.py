"""Function documentation as text, one function a line.

Written compactly on purpose: with indentation and response schemas some BFCL prompts do not fit 8192 tokens.
A JSON line needs about half of the characters of BFCL's own indented form, a signature about a twentieth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, get_args
from urllib.parse import unquote

DocStyle = Literal["json", "signature"]
DOC_STYLES: tuple[str, ...] = get_args(DocStyle)

_TYPE_NAMES = {"string": "str", "integer": "int", "boolean": "bool", "array": "list", "number": "float"}
_SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array"}

_LEFT_OUT = ("title", "$ref", "$defs", "definitions", "$schema", "$id", "discriminator")
_DATA = ("default", "const", "enum", "examples", "example")  # their values are no schemas, nor are those of x-...


def compact_json(value: Any, allow_nan: bool = True) -> str:
    """JSON without spaces, with non-ASCII characters as they are. Without `allow_nan`, NaN raises ValueError."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=allow_nan)


def documented(function: Mapping[str, Any], types: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Name, description and parameters of a function: types by these names, no references, titles or nulls of tables.

    Raises:
        ValueError: a part of its schema is none, or contains itself; says where.
    """
    found = {key: function[key] for key in ("name", "description") if key == "name" or function.get(key) is not None}
    schema = function.get("parameters") or {"type": "dict", "properties": {}}
    return found | {"parameters": _shown(schema, schema, types, f"function {found['name']}: parameters")}


def _shown(schema: Any, root: Any, types: Mapping[str, str], where: str, depth: int = 0) -> dict[str, Any]:
    def inner(value: Any, key: object) -> dict[str, Any]:
        return _shown(value, root, types, f"{where}.{key}", depth + 1)

    schema = {} if schema is True else {"not": {}} if schema is False else schema
    if not isinstance(schema, dict) or depth > 40:
        raise ValueError(f"{where[:120]} is no JSON Schema, or one that contains itself")
    if (reference := schema.get("$ref")) is not None:
        target, beside = _target(root, reference), {key: schema[key] for key in schema if key != "$ref"}
        return inner(target | beside if isinstance(target, dict) else target, reference)
    result: dict[str, Any] = {}
    for key, value in schema.items():
        value = value.tolist() if hasattr(value, "tolist") else value  # pandas reads lists as arrays
        data = key in _DATA or str(key).startswith("x-")
        missing = value is None and key not in ("default", "const") or isinstance(value, float) and not isfinite(value)
        if key in _LEFT_OUT or missing:  # tables have NaN too, and JSON has none
            continue
        if key == "properties":
            named = value.items() if isinstance(value, dict) else [("", value)]
            result[key] = {name: inner(item, name) for name, item in named if item is not None}
        elif key == "type":
            kinds = value if isinstance(value, list) else [value]
            kinds = [
                types.get(kind, kind) if isinstance(kind, str) else inner(None, key) for kind in kinds
            ]  # or raises
            others = [kind for kind in kinds if kind != "null"] or kinds
            result |= {key: others[0] if len(others) == 1 else others}
            result |= {"nullable": True} if len(others) < len(kinds) else {}
        elif isinstance(value, dict) and not data:
            result[key] = inner(value, key)
        elif isinstance(value, list) and not data:
            parts = enumerate(value)
            result[key] = [inner(item, f"{key}.{at}") if isinstance(item, dict) else item for at, item in parts]
        else:
            result[key] = value
    return result


def _target(root: Any, reference: object) -> Any:
    """What a pointer into the root names, such as "#/$defs/Point" (RFC 6901); None if that is nothing."""
    start, *keys = unquote(str(reference)).split("/")
    try:
        for key in (key.replace("~1", "/").replace("~0", "~") for key in keys):
            root = root[key if isinstance(root, dict) else int(key)]
        return root if start == "#" else None
    except (LookupError, TypeError, ValueError):
        return None


def openai_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """The function as `tools=` of a chat template or an OpenAI endpoint takes it, types named as in JSON Schema.

    BFCL says "dict" and "float" where JSON Schema says "object" and "number".
    """
    return {"type": "function", "function": {"name": "", "description": "", **documented(function, _SCHEMA_TYPES)}}


def signature_line(function: Mapping[str, Any]) -> str:
    """`name(a: str, b: int = 10)`: names and types only, no descriptions.

    Defaults are written as JSON because arguments are; BFCL writes "no default" as the text "None".
    """
    parameters = documented(function)["parameters"]
    required = parameters.get("required", ())
    parts = []
    for name, schema in parameters.get("properties", {}).items():
        part = f"{name}: {_type_name(schema)}"
        if name not in required:
            default = schema.get("default")
            part += f" = {compact_json(None if default == 'None' else default)}"
        parts.append(part)
    return f"{function['name']}({', '.join(parts)})"


def _type_name(schema: dict[str, Any]) -> str:
    kinds = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    name = _type_name(kinds[0]) if len(kinds) == 1 else schema.get("type", "any")
    if isinstance(name, list):
        return " | ".join(_type_name({"type": kind}) for kind in name)
    if name == "array" and isinstance(items := schema.get("items"), dict) and "type" in items:
        return f"list[{_type_name(items)}]"
    return _TYPE_NAMES.get(name, name)


def render_docs(functions: Iterable[Mapping[str, Any]], style: DocStyle) -> str:
    """The documentation of `functions`, one a line; as JSON without the schema of what they return."""
    if style == "signature":
        return "\n".join(map(signature_line, functions))
    return "\n".join(map(compact_json, map(documented, functions)))
