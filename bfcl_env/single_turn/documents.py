"""Function documentation as a model reads it.

Functions of Java and JavaScript take their values as source text, so that every protocol can write them: BFCL
documents each parameter as a string and says in its own words, kept here, what the string holds. Functions of Python
are shown as they are.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bfcl_env.single_turn.checker import Language

_SYNTAX = {
    "java": "Note that the provided function is in Java 8 SDK syntax.",
    "javascript": "Note that the provided function is in JavaScript syntax.",
}
_NAMES = {"java": "Java", "javascript": "JavaScript"}


def shown(functions: Iterable[Mapping[str, Any]], language: Language) -> list[dict[str, Any]]:
    """The documents (name, description, parameters) for the prompt. They may share values with those given."""
    if language == "python":
        return [dict(function) for function in functions]
    return [
        {
            **function,
            "description": f"{function['description']} {_SYNTAX[language]}",
            "parameters": {
                **function["parameters"],
                "properties": {
                    name: _as_text(schema, _NAMES[language])
                    for name, schema in function["parameters"]["properties"].items()
                },
            },
        }
        for function in functions
    ]


def _as_text(schema: Mapping[str, Any], language: str) -> dict[str, Any]:
    """The schema of a parameter whose value is source text."""
    kind = schema["type"]
    words = [schema["description"]]
    if kind == "any":
        words.append(f"This parameter can be of any type of {language} object in string representation.")
    else:
        words.append(f"This is {language} {kind} type parameter in string representation.")
    if "items" in schema:
        words.append(f"The list elements are of type {schema['items']['type']}; they are not in string representation.")
    if "properties" in schema:
        words.append(
            "The dictionary entries have the following schema; they are not in string representation. "
            + json.dumps(schema["properties"])
        )
    kept = {key: value for key, value in schema.items() if key not in ("items", "properties")}
    return {**kept, "type": "string", "description": " ".join(words)}
