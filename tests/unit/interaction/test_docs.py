"""Every valid schema is shown in each protocol, or refused by function and place."""

import numpy as np
import pytest

from interaction.protocol import PROTOCOLS, get_protocol
from interaction.protocol.docs import documented, openai_tool, signature_line

NAMED = {"properties": {"title": {"type": "string"}}}
LOOP = {"properties": {"left": {"$ref": "#/$defs/Loop"}}, "left": {"type": "integer"}}
SHARED = {"Loop": LOOP, "Named": {**NAMED, "title": "Named", "required": None}, "b /": {"$ref": "#/$defs/Loop/left"}}
SHARED |= {"List": {"oneOf": [{"type": "integer"}]}}


def nested(levels):
    """Arrays in each other, the innermost of anything."""
    return {"type": "array", "items": nested(levels - 1)} if levels else {}


DEFAULTS = {"": "null", "'None'": "null", "None": "null", "0.0": "0.0", "[]": "[]", "False": "false"}
"""What a default is in a signature."""
SCHEMAS = (
    ("str", {"type": ["string", "null"]}, {"type": "string", "nullable": True}),
    ("list[float]", {"type": ["array"], "items": {"type": "float"}}, {"type": "array", "items": {"type": "number"}}),
    ("any", {"$ref": "#/$defs/Named"}, NAMED),
    ("int", {"$ref": "#/$defs/b%20~1", "$defs": {}, "default": float("nan")}, {"type": "integer"}),
    ("any", *[{"example": {"title": [1]}, "x-y": {"$ref": "v1"}}] * 2),
    ("any", {"oneOf": [{"type": "dict"}, {"const": None}]}, {"oneOf": [{"type": "object"}, {"const": None}]}),
    ("any", {"enum": np.array(["a", 1], object), "items": None}, {"enum": ["a", 1]}),
    ("any", True, {}),
    ("any", False, {"not": {}}),
    ("null", *[{"type": "null"}] * 2),
    ("int", {"$ref": "#/$defs/List/oneOf/0"}, {"type": "integer"}),
    ("tuple", {"type": "tuple", "items": True}, {"type": "array", "items": True}),
    ("bool | any", {"type": ["boolean", "null", "any"]}, {"type": ["boolean", "any"], "nullable": True}),
    ("any", *[{"anyOf": [{"type": "integer"}, {"type": "boolean"}]}] * 2),
    (f"{'list[' * 38}list{']' * 38}", *[nested(39)] * 2),
    ("bool", *[{"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": {"type": None}}] * 2),
)
REFUSED = (
    *((3, "a "), ({"items": {"$ref": "#/b"}}, "a.items.#/b"), (LOOP, "a.left.#")),
    *((nested(40), "a.items"), ({"properties": 3}, "a. "), ({"oneOf": [{}, {"$ref": "#/b"}]}, "a.oneOf.1.#")),
    *(({"type": {"b": 1}}, "a.type"), *(({"$ref": f"{at}/$defs/Named"}, f"a.{at}/") for at in ("http://c/#", ""))),
)


def function(schema):
    parameters = {"properties": {"a": schema, "b": None}, "required": ["a"], "$defs": SHARED}
    return {"name": "f", "description": None, "parameters": parameters}


def test_each_valid_schema_is_shown_and_others_are_refused_by_function_and_place():
    for name, schema, shown in SCHEMAS:
        assert openai_tool(function(schema))["function"]["parameters"]["properties"] == {"a": shown}
        assert signature_line(function(schema)) == f"f(a: {name})"
        for protocol in (get_protocol(name, docs=docs) for name in PROTOCOLS for docs in ("json", "signature")):
            assert protocol.system_prompt([function(schema), {"name": "A"}])
    for default, written in DEFAULTS.items():
        schema = {"type": "any"} | ({"default": eval(default)} if default else {})
        parameters = {"properties": {"a": schema, "b": {"type": "any"}}, "required": ["b"]}
        assert signature_line({"name": "f", "parameters": parameters}) == f"f(a: any = {written}, b: any)"
    for schema, place in REFUSED:
        with pytest.raises(ValueError, match=f"function f: parameters.{place}"):
            documented(function(schema))
