"""An entry of one message with functions of its own, which are not executed: checked, then made a single-turn task."""

import json
from collections.abc import Mapping
from typing import Any

from bfcl_env.entries.categories import language_of
from bfcl_env.entries.fields import question, shown
from bfcl_env.entries.mistakes import Tell, show
from bfcl_env.single_turn.categories import CATEGORIES, Category, Wanted
from bfcl_env.single_turn.tasks import SingleTurnTask

KEYS = frozenset({"id", "question", "function", "ground_truth", "initial_config", "involved_classes"})
"""The last two may be there, and empty."""

TYPES: dict[str, tuple[str, ...]] = {
    "python": ("string", "integer", "float", "boolean", "array", "tuple", "dict", "any"),
    "java": (
        *("byte", "short", "integer", "float", "double", "long", "boolean", "char", "Array", "ArrayList", "Set"),
        *("HashMap", "Hashtable", "Queue", "Stack", "String", "any"),
    ),
    "javascript": ("String", "integer", "float", "Bigint", "Boolean", "dict", "array", "any"),
}
"""Types of parameters that BFCL's checker knows, by language."""

JSON_SCHEMA = {"object": "dict", "number": "float"}
"""What JSON schema calls two of Python's."""


class OwnSingleTurnTask(SingleTurnTask):
    """A task of a category that BFCL need not have."""

    @property
    def kind(self) -> Category:
        return kind_of(self.category)


def kind_of(category: str) -> Category:
    """What a category asks for, and in which language."""
    if category in CATEGORIES:
        return CATEGORIES[category]
    wanted: Wanted = "any call" if category == "relevance" else "accepted"
    return Category(language_of(category), parallel=category.startswith("parallel"), wanted=wanted)


def task(entry: Mapping[str, Any], category: str, tell: Tell) -> OwnSingleTurnTask | None:
    """The task of an entry; None if something is wrong with it, which `tell` hears."""
    wrong: list[str] = []

    def said(field: str, found: str, expected: str) -> None:
        wrong.append(field)
        tell(field, found, expected)

    kind = kind_of(category)
    turns = question(entry, ("system", "user", "assistant"), said)
    if turns is not None:
        if len(turns) != 1:
            said("question", f"{len(turns)} turns", f"one, as {category} is no category of several")
        elif not turns[0] or turns[0][-1]["role"] != "user":
            said("question[0]", show(turns[0][-1:]), "messages of which the last is the user's")
    for field in ("initial_config", "involved_classes"):
        if entry.get(field):
            said(
                field,
                show(entry[field]),
                f"nothing: classes are for multi_turn categories, and this is {category}",
            )
    functions = _functions(entry, kind, said)
    if kind.wanted != "accepted":
        if entry.get("ground_truth"):
            said("ground_truth", show(entry["ground_truth"]), f"none: {category} says by itself whether to call")
    elif functions is not None:
        _check_accepted(entry, functions, kind, said)
    if wrong or functions is None:
        return None
    asked = {"id": entry["id"], "question": entry["question"], "function": list(functions.values())}
    answer = {"id": entry["id"], "ground_truth": entry["ground_truth"]} if kind.wanted == "accepted" else None
    return OwnSingleTurnTask(
        entry["id"], category, "", "train", json.dumps(asked), json.dumps(answer) if answer else ""
    )


def _functions(entry: Mapping[str, Any], kind: Category, tell: Tell) -> dict[str, dict[str, Any]] | None:
    """Name -> document (name, description, parameters), with the types that the checker knows."""
    given = entry.get("function")
    if not isinstance(given, list) or not (given or kind.wanted == "no call"):
        tell("function", shown(entry, "function"), "a list of documents of functions: name, description, parameters")
        return None
    found: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(given):
        field = f"function[{number}]"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"].strip():
            tell(field, show(item), "an object with name, description and parameters")
        elif item["name"] in found:
            tell(f"{field}.name", show(item["name"]), "another name for each function")
        elif not isinstance(item.get("description"), str):
            tell(f"{field}.description", shown(item, "description"), "what the function does, as text")
        elif (parameters := _parameters(item.get("parameters"), f"{field}.parameters", kind, tell)) is not None:
            found[item["name"]] = {"name": item["name"], "description": item["description"], "parameters": parameters}
    return found if len(found) == len(given) else None


def _parameters(given: Any, field: str, kind: Category, tell: Tell) -> dict[str, Any] | None:
    expected = "an object: type dict, properties (parameter -> its type and description) and required, a list of names"
    if not isinstance(given, dict) or not isinstance(given.get("properties"), dict):
        tell(field, show(given), expected)
        return None
    if given.get("type") not in ("dict", "object"):
        tell(f"{field}.type", shown(given, "type"), "dict")
        return None
    properties, required = given["properties"], given.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        tell(f"{field}.required", show(required), f"a list of some of {', '.join(properties)}")
        return None
    schemas = {name: _schema(schema, f"{field}.properties.{name}", kind, tell) for name, schema in properties.items()}
    if None in schemas.values():
        return None
    return {**given, "type": "dict", "properties": schemas, "required": required}


def _schema(given: Any, field: str, kind: Category, tell: Tell) -> dict[str, Any] | None:
    """One parameter's schema, and those inside it."""
    if not isinstance(given, dict):
        tell(field, show(given), "an object with type and description")
        return None
    types, made = TYPES[kind.language], dict(given)
    if kind.language == "python" and isinstance(made.get("type"), str):
        made["type"] = JSON_SCHEMA.get(made["type"], made["type"])
    if made.get("type") not in types:
        tell(f"{field}.type", shown(given, "type"), f"a type of {kind.language}: {', '.join(types)}")
        return None
    if not isinstance(made.setdefault("description", ""), str):
        tell(f"{field}.description", show(made["description"]), "text")
        return None
    inner = {"items": {"": made["items"]} if "items" in made else {}, "properties": made.get("properties", {})}
    for key, schemas in inner.items():
        if not isinstance(schemas, dict):
            tell(f"{field}.{key}", show(schemas), "an object: name -> its type and description")
            return None
        read = {
            name: _schema(item, f"{field}.{key}{'.' * bool(name)}{name}", kind, tell) for name, item in schemas.items()
        }
        if None in read.values():
            return None
        if read:
            made[key] = read[""] if key == "items" else read
    return made


def _check_accepted(
    entry: Mapping[str, Any], functions: Mapping[str, dict[str, Any]], kind: Category, tell: Tell
) -> None:
    """Accepted calls are of known functions and arguments, and there are as many as the category asks for."""
    given = entry.get("ground_truth")
    if not isinstance(given, list) or not given:
        expected = "a list of accepted calls: [{function: {argument: [accepted values]}}]"
        tell("ground_truth", shown(entry, "ground_truth"), expected)
        return
    if not kind.parallel and len(given) != 1:
        tell("ground_truth", f"{len(given)} calls", "one: several are for the parallel categories")
    for number, call in enumerate(given):
        field = f"ground_truth[{number}]"
        if not isinstance(call, dict) or len(call) != 1 or not isinstance(next(iter(call.values())), dict):
            tell(field, show(call), "an object with one function: {function: {argument: [accepted values]}}")
            continue
        name, arguments = next(iter(call.items()))
        if name in functions:
            _check_arguments(arguments, functions[name]["parameters"], f"{field}.{name}", tell)
        else:
            tell(field, f"{show(name)}, which is not in `function`", f"one of {', '.join(functions)}")


def _check_arguments(arguments: Mapping[str, Any], parameters: Mapping[str, Any], field: str, tell: Tell) -> None:
    for argument, values in arguments.items():
        place = f"{field}.{argument}"
        if argument not in parameters["properties"]:
            tell(place, "no parameter of this name", ", ".join(parameters["properties"]))
        elif not isinstance(values, list) or not values:
            tell(place, show(values), 'a list of accepted values, with "" where it may be left out')
        else:
            objects = [item for value in values for item in (value if isinstance(value, list) else [value])]
            for item in (item for item in objects if isinstance(item, dict)):
                if not all(isinstance(inner, list) and inner for inner in item.values()):
                    tell(place, show(item), "an object whose keys have lists of accepted values too: {key: [values]}")
    for missing in [item for item in parameters["required"] if arguments.get(item) in (None, [""])]:
        tell(field, f"no value for {missing}, which is required", "at least one accepted value")
