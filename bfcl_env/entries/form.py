"""The form of an entry. Pydantic checks types; what depends on several fields is checked here.

Each check gives problems, as pairs of a place and a sentence. Nothing of an entry is executed.
"""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model

from bfcl_env.calls import parse_call
from bfcl_env.scenarios import EARLY_GOLD, Scenario
from bfcl_env.single_turn.tasks import Category, SingleTurnTask, kind_of
from bfcl_env.source import CLASS_MODULES, function_docs, load_class
from interaction.call import CallError
from interaction.protocol.docs import documented

Problem = tuple[str, str]
"""Where, and what is wrong there."""

FOLDER = '{"type": "directory", "contents": {name: a file or a folder}}'
FILE = '{"type": "file", "content": "its text"}'

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
"""JSON schema's names for two of Python's types."""

Words = Annotated[str, StringConstraints(pattern=r"\S")]
ClassName = Literal[tuple(CLASS_MODULES)]  # type: ignore[valid-type]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class UserMessage(_Strict):
    role: Literal["user"]
    content: Words


class Message(_Strict):
    role: Literal["system", "user", "assistant"]
    content: Words


class File(_Strict):
    type: Literal["file"]
    content: str


class Folder(_Strict):
    type: Literal["directory"]
    contents: dict[str, Annotated["File | Folder", Field(discriminator="type")]]


class FileSystem(BaseModel):
    root: Annotated[dict[str, Folder], Field(min_length=1)] | None = None


class MultiTurn(BaseModel):
    """An entry of several turns."""

    model_config = ConfigDict(strict=True)

    id: str
    question: Annotated[list[list[UserMessage]], Field(min_length=1)]
    involved_classes: Annotated[
        list[ClassName],  # type: ignore[valid-type]
        Field(min_length=1, validation_alias=AliasChoices("involved_classes", "invoked_classes")),
    ]
    initial_config: dict[ClassName, dict[str, Any]] = {}  # type: ignore[valid-type]
    missed_function: dict[str, list[str]] = {}
    function: list[dict[str, Any]] = []
    ground_truth: list[list[str]]
    excluded_function: list[str] = []
    part: Literal["train", "dev", "test"] | None = None
    """Where the entry belongs; otherwise entries that resemble each other are split together."""
    path: Any = Field(None, validation_alias=AliasChoices("path", "involved_path"))


def _not_null(kind: Any) -> Any:
    """The type of a type or null."""
    kinds = [name for name in kind if name != "null"] if isinstance(kind, list) else []
    return kinds[0] if len(kinds) == 1 else kind


class Schema(BaseModel):
    type: Annotated[str, BeforeValidator(_not_null)]
    description: str = ""
    items: "Schema | None" = None
    properties: "dict[str, Schema] | None" = None


class Parameters(BaseModel):
    type: Literal["dict", "object"]
    properties: dict[str, Schema]
    required: list[str] = []


class Function(BaseModel):
    name: Words
    description: str
    parameters: Parameters


class SingleTurn(BaseModel):
    """An entry of one question, with functions that are not executed."""

    model_config = ConfigDict(strict=True)

    id: str
    question: Annotated[list[Annotated[list[Message], Field(min_length=1)]], Field(min_length=1, max_length=1)]
    function: list[Function]
    ground_truth: list[
        Annotated[dict[str, dict[str, Annotated[list[Any], Field(min_length=1)]]], Field(min_length=1, max_length=1)]
    ] = []
    part: Literal["train", "dev", "test"] | None = None
    initial_config: Annotated[dict[str, Any], Field(max_length=0)] = {}
    involved_classes: Annotated[
        list[str], Field(max_length=0, validation_alias=AliasChoices("involved_classes", "invoked_classes"))
    ] = []


def keys(form: type[BaseModel]) -> set[str]:
    """The keys of an entry that are read; all others are kept for rewards."""
    aliases = [field.validation_alias for field in form.model_fields.values()]
    spelled = [str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices]
    return {*form.model_fields, *spelled}


# Multi-turn entries.


class _Recorder(dict[str, Any]):
    """An empty initial state that remembers what it was asked for, and the defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.asked[key] = default
        return default

    def __contains__(self, key: object) -> bool:
        self.asked.setdefault(str(key), None)
        return False


@cache
def initial_keys(class_name: str) -> dict[str, Any]:
    """The attributes that a class reads from its initial state -> their defaults, if any."""
    instance, state = load_class(class_name)(), _Recorder()
    if hasattr(instance, "_load_scenario"):  # MathAPI has no state
        instance._load_scenario(state)
    return state.asked


@cache
def state_form(class_name: str) -> type[BaseModel]:
    """The form of a class's initial state."""
    if class_name == "GorillaFileSystem":
        return FileSystem
    fields: dict[str, Any] = {}
    for key, default in initial_keys(class_name).items():
        kind = list if isinstance(default, set) else type(default)
        fields[key] = (Any if default is None else kind, None)
    return create_model(class_name, __config__=ConfigDict(strict=True), **fields)


def idle(form: MultiTurn) -> Iterator[Problem]:
    """Parts of an initial state that nothing reads."""
    for name, state in form.initial_config.items():
        place = f"initial_config.{name}"
        if name not in form.involved_classes:
            yield place, "does nothing: the class is not in involved_classes"
            continue
        for key in state.keys() - initial_keys(name).keys():
            yield f"{place}.{key}", "does nothing: the class does not read it"
        for folder in [*(state.get("root") or ())][1:]:
            yield f"{place}.root.{folder}", "does nothing: the class reads the first folder only"


def problems_of_turns(entry: Mapping[str, Any], form: MultiTurn) -> Iterator[Problem]:
    """What types do not say of a multi-turn entry."""
    for key in entry.keys() - keys(MultiTurn):
        if meant := get_close_matches(key, ("initial_config", "missed_function"), n=1, cutoff=0.8):
            yield key, f"is not read; is {meant[0]} meant?"
    for name, state in form.initial_config.items():
        for key in state.keys() - initial_keys(name).keys():
            if meant := get_close_matches(key, initial_keys(name), n=1, cutoff=0.8):
                yield f"initial_config.{name}.{key}", f"is not read; is {meant[0]} meant?"
    known = {name for owner in form.involved_classes for name in function_docs()[owner]}
    for turn, names in form.missed_function.items():
        if not (turn.isdecimal() and 1 <= int(turn) < len(form.question)):
            yield f"missed_function.{turn}", f"is no turn from 1 to {len(form.question) - 1} (the first is 0)"
        if wrong := [name for name in names if name not in known]:
            yield f"missed_function.{turn}", f"{', '.join(wrong)} is no function of the involved classes"
    withheld = {name for names in form.missed_function.values() for name in names}.union(form.excluded_function)
    named = {item.get("name") for item in form.function}
    if named and (named - known or known - named - withheld):
        yield "function", "must be left out, or name all functions of the involved classes"
    for number, said in enumerate(form.question):
        if not said and str(number) not in form.missed_function:
            yield f"question.{number}", "has no message; only a turn of missed_function may be empty"
    yield from _gold_problems(form, known)


def _gold_problems(form: MultiTurn, known: set[str]) -> Iterator[Problem]:
    if len(form.ground_truth) != len(form.question):
        yield "ground_truth", f"has {len(form.ground_truth)} lists of calls; expected {len(form.question)}, one a turn"
    if not any(form.ground_truth):
        yield "ground_truth", "has no call in any turn, so nothing would be judged"
    reveal = {name: int(turn) for turn, names in form.missed_function.items() if turn.isdecimal() for name in names}
    reveal |= {name: turn for name, turn in EARLY_GOLD.get(form.id, {}).items() if name in reveal}
    bare = Scenario("", "", 0, tuple(form.involved_classes), (), ())
    for number, calls in enumerate(form.ground_truth):
        for place, text in enumerate(calls):
            where = f"ground_truth.{number}.{place}"
            try:
                call = parse_call(text, bare)
            except CallError as error:
                yield where, f"{text[:80]!r}: {error}"
                continue
            if call.name not in known:
                yield where, f"{call.name!r} is no function of the involved classes"
            elif call.positional:
                yield where, f"{text[:80]!r} has too many arguments, or one twice"
            elif reveal.get(call.name, 0) > number:
                yield where, f"{call.name} is withheld until turn {reveal[call.name]} (the first is 0)"


# Single-turn entries.


def single_turn(entry: Mapping[str, Any], category: str) -> SingleTurnTask:
    """The task of an entry without problems."""
    kind = kind_of(category)
    functions = [_document(item, kind) for item in entry["function"]]
    asked = {"id": entry["id"], "question": entry["question"], "function": functions}
    answer = {"id": entry["id"], "ground_truth": entry["ground_truth"]} if kind.wanted == "accepted" else None
    return SingleTurnTask(entry["id"], category, "", "train", json.dumps(asked), json.dumps(answer) if answer else "")


def _document(given: Mapping[str, Any], kind: Category) -> dict[str, Any]:
    """A function's document with the types that the checker knows."""
    made = documented(given, JSON_SCHEMA if kind.language == "python" else {})
    parameters = made["parameters"]
    for name, schema in parameters["properties"].items():
        parameters["properties"][name] = {**schema, "description": schema.get("description", "")}
    return {**made, "parameters": {**parameters, "type": "dict", "required": parameters.get("required", [])}}


def problems_of_question(form: SingleTurn, category: str) -> Iterator[Problem]:
    """What types do not say of a single-turn entry."""
    kind = kind_of(category)
    if form.question[0][-1].role != "user":
        yield "question.0", "must end with a message of the user"
    if not form.function and kind.wanted != "no call":
        yield "function", "must have at least one document"
    documents = {item.name: item.parameters for item in form.function}
    if len(documents) < len(form.function):
        yield "function", "has two documents of one name"
    for name, parameters in documents.items():
        if wrong := [item for item in parameters.required if item not in parameters.properties]:
            yield f"function.{name}.required", f"{', '.join(wrong)} is no parameter"
        for parameter, schema in parameters.properties.items():
            for wrong_type in _wrong_types(schema, kind):
                expected = ", ".join(TYPES[kind.language])
                yield f"function.{name}.{parameter}", f"type {wrong_type!r} is none of {kind.language}: {expected}"
    if kind.wanted != "accepted" and form.ground_truth:
        yield "ground_truth", f"must be empty: {category} says by itself whether to call"
    if kind.wanted == "accepted" and (len(form.ground_truth) != 1 if not kind.parallel else not form.ground_truth):
        yield "ground_truth", f"has {len(form.ground_truth)} calls; expected {'some' if kind.parallel else 'one'}"
    for number, call in enumerate(form.ground_truth):
        [(name, arguments)] = call.items()
        where = f"ground_truth.{number}.{name}"
        if name not in documents:
            yield where, f"is no function; expected one of {', '.join(documents)}"
            continue
        properties = documents[name].properties
        if unknown := [item for item in arguments if item not in properties]:
            yield where, f"{', '.join(unknown)} is no parameter; expected {', '.join(properties)}"
        if missing := [item for item in documents[name].required if arguments.get(item) in (None, [""])]:
            yield where, f"has no value for {', '.join(missing)}, which is required"


def _wrong_types(schema: Schema, kind: Category) -> Iterator[str]:
    name = JSON_SCHEMA.get(schema.type, schema.type) if kind.language == "python" else schema.type
    if name not in TYPES[kind.language]:
        yield schema.type
    for inner in [*([schema.items] if schema.items else []), *(schema.properties or {}).values()]:
        yield from _wrong_types(inner, kind)
