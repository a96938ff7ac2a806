"""The calls of a right message, from the values that BFCL accepts: the first of each argument.

An argument whose first accepted value is "" is left out, unless it is required; so is one that its function does not
have, and such entries of an object. For Java and JavaScript values are written as source text, which is what the
documentation asks for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bfcl_env.single_turn.checker import Language
from interaction.call import Call

LEFT_OUT = ""
"""Among the accepted values: the argument may be left out."""


def gold_calls(
    accepted: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]], language: Language
) -> tuple[Call, ...]:
    """One call for each that is accepted, in its order."""
    parameters = {function["name"]: function["parameters"] for function in functions}
    return tuple(
        Call(name, _arguments(arguments, parameters[name], language))
        for choices in accepted
        for name, arguments in choices.items()
    )


def _arguments(
    accepted: Mapping[str, Sequence[Any]], parameters: Mapping[str, Any], language: Language
) -> dict[str, Any]:
    properties, required, chosen = parameters.get("properties", {}), parameters.get("required", ()), {}
    for name, values in accepted.items():
        if name in required:
            values = [value for value in values if value != LEFT_OUT] or values
        if values and name in properties and (values[0] != LEFT_OUT or name in required):
            chosen[name] = _written(_plain(values[0]), properties[name], language)
    return chosen


def _plain(value: Any) -> Any:
    """An accepted value as an argument has it: objects, alone or in a list, accept several values for each entry."""
    if isinstance(value, dict):
        listed = {key: values if isinstance(values, list) else [values] for key, values in value.items()}
        return {key: values[0] for key, values in listed.items() if values[0] != LEFT_OUT}
    if isinstance(value, list):
        return [_plain(item) if isinstance(item, dict) else item for item in value]
    return value


def _written(value: Any, schema: Mapping[str, Any], language: Language) -> Any:
    if language == "python" or isinstance(value, str):  # a string for another type is the name of a variable
        return value
    if language == "java":
        return java_source(value, schema["type"], schema.get("items", {}).get("type", "any"))
    return json.dumps(value, ensure_ascii=False)


def java_source(value: Any, kind: str = "any", item_kind: str = "any") -> str:
    """A literal of Java.

    Args:
        kind: BFCL's type of the value: long, float, Array, ArrayList and HashMap are written in ways of their own.
        item_kind: that of the elements of an Array or ArrayList.
    """
    if isinstance(value, dict):
        puts = " ".join(f"put({java_source(key)}, {java_source(item)});" for key, item in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    if isinstance(value, list):
        items = ", ".join(java_source(item, item_kind) for item in value)
        if kind == "Array":
            return f"new {_BOXED.get(item_kind, 'Object')}[]{{{items}}}"
        return f"new ArrayList<{_BOXED.get(item_kind, 'Object')}>(Arrays.asList({items}))"
    suffix = {"long": "L", "float": "f"}.get(kind, "")
    return json.dumps(value, ensure_ascii=False) + suffix


_BOXED = {"integer": "Integer", "long": "Long", "float": "Float", "double": "Double", "String": "String"}
