"""BFCL's single-turn tasks as frozen data: one question, functions, and the calls that are accepted."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from bfcl_env.single_turn import components
from bfcl_env.single_turn.checker import Language, check_calls
from bfcl_env.single_turn.values import LEFT_OUT
from bfcl_env.source import VERSION, lines_of, read_pinned
from interaction.call import Call
from interaction.environment import GoldMessage, Part

if TYPE_CHECKING:
    from bfcl_env.single_turn.environment import SingleTurnEnvironment

Wanted = Literal["accepted", "no call", "any call"]


@dataclass(frozen=True, slots=True)
class Category:
    """What the tasks of a category have in common."""

    language: Language = "python"
    parallel: bool = False
    """Whether several calls are asked for, in any order; else exactly one."""
    wanted: Wanted = "accepted"
    """Calls that the data accepts; no call, because no function helps; or any call, because one does."""


CATEGORIES: Mapping[str, Category] = {
    "simple_python": Category(),
    "simple_java": Category(language="java"),
    "simple_javascript": Category(language="javascript"),
    "multiple": Category(),
    "parallel": Category(parallel=True),
    "parallel_multiple": Category(parallel=True),
    "irrelevance": Category(wanted="no call"),
    "live_simple": Category(),
    "live_multiple": Category(),
    "live_parallel": Category(parallel=True),
    "live_parallel_multiple": Category(parallel=True),
    "live_irrelevance": Category(wanted="no call"),
    "live_relevance": Category(wanted="any call"),
}
"""The 13 that BFCL scores, in its order."""


def kind_of(category: str) -> Category:
    """The language of a category, and the calls that it asks for; users' files have some that BFCL has not."""
    if category in CATEGORIES:
        return CATEGORIES[category]
    language: Language = next((name for name in get_args(Language) if category.endswith(f"_{name}")), "python")
    wanted: Wanted = "any call" if category == "relevance" else "accepted"
    return Category(language, category.startswith("parallel"), wanted)


DATA_SHA256 = "cc94872bc0aea62b143e6a5fe485deeeec1489faf8091a673b20325e27cde8b4"
"""As `bfcl_env.source.DATA_SHA256`, of the questions and answers of all categories."""
NO_FUNCTION_HELPS = "None of the functions that I have can do this."
"""Gold's answer where none is to be called. What it says does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class SingleTurnTask:
    """One task; its documents are read when they are first needed."""

    id: str
    category: str
    cluster: str
    part: Part
    entry_json: str
    """BFCL's question and functions; text, so that nothing can change them."""
    answer_json: str
    """The calls that BFCL accepts; empty where it looks only whether there is a call."""

    environment: ClassVar[str] = "bfcl_single"

    @property
    def kind(self) -> Category:
        """What its category has in common."""
        return kind_of(self.category)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question: a request, in a few tasks after a system message, or at the end of a conversation."""
        return json.loads(self.entry_json)["question"][0]

    @property
    def functions(self) -> list[dict[str, Any]]:
        """BFCL's documents (name, description, parameters), the caller's own copy."""
        return json.loads(self.entry_json)["function"]

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """The calls that are accepted, [{function: {argument: [accepted values]}}], the caller's own copy."""
        return json.loads(self.answer_json)["ground_truth"] if self.answer_json else []

    def open(self, **options: Any) -> "SingleTurnEnvironment":
        """A fresh attempt; there are no options."""
        from bfcl_env.single_turn.environment import SingleTurnEnvironment

        return SingleTurnEnvironment(self, **options)

    def gold(self) -> Iterator[GoldMessage]:
        """One message: calls with the first accepted values, or an answer.

        None where no calls are known that pass: BFCL has none for `live_relevance`, and four other tasks accept no
        value for an argument that must be given, or demand one that there is not (`failing_gold`).
        """
        kind = self.kind
        if kind.wanted == "no call":
            yield GoldMessage(answer=NO_FUNCTION_HELPS)
        elif kind.wanted == "accepted":
            functions, accepted = self.functions, self.accepted
            calls = gold_calls(accepted, functions, kind.language)
            if check_calls(calls, functions, accepted, kind.language, parallel=kind.parallel).passed:
                yield GoldMessage(calls)


@cache
def load_tasks() -> tuple[SingleTurnTask, ...]:
    """All 3,641 tasks, category by category.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    read = read_categories()
    entries = {name: [json.loads(text) for text, _ in pairs] for name, pairs in read.items()}
    categories = {entry["id"]: name for name, those in entries.items() for entry in those}
    clusters = components.joined({one["id"]: components.marks_of(one) for those in entries.values() for one in those})
    parts = components.parts(categories, clusters, failing_gold())
    return tuple(
        SingleTurnTask(entry["id"], name, clusters[entry["id"]], parts[clusters[entry["id"]]], *texts)
        for name, pairs in read.items()
        for entry, texts in zip(entries[name], pairs, strict=True)
    )


def read_categories() -> dict[str, list[tuple[str, str]]]:
    """Category -> its tasks, each two texts of JSON: the entry (id, question, function), and BFCL's answer (id,
    ground_truth), empty where BFCL has none. In BFCL's order, which is the same in both files.

    Raises:
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    questions = {name: f"BFCL_v4_{name}.json" for name in CATEGORIES}
    answers = {
        name: f"possible_answer/{questions[name]}" for name, kind in CATEGORIES.items() if kind.wanted == "accepted"
    }
    contents = read_pinned((*questions.values(), *answers.values()), DATA_SHA256)
    found = {}
    for name in CATEGORIES:
        asked = lines_of(contents[questions[name]])
        answered = lines_of(contents[answers[name]]) if name in answers else [""] * len(asked)
        found[name] = list(zip(asked, answered, strict=True))
    return found


def made_from() -> dict[str, Any]:
    """What the tasks were made from, for the manifest of a data set."""
    return {"seed": components.SEED, "bfcl_eval": VERSION, "data_sha256": DATA_SHA256}


@cache
def failing_gold() -> dict[str, str]:
    """Id -> why BFCL's own checker fails whatever its data accepts. These tasks are held out."""
    found = json.loads(files("bfcl_env.single_turn").joinpath("failing_gold.json").read_text("utf-8"))["tasks"]
    return {name: item["reason"] for name, item in found.items() if item["official"] == "never"}


# Gold.


def gold_calls(
    accepted: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]], language: Language
) -> tuple[Call, ...]:
    """One call for each that is accepted, with the first accepted value of each argument.

    An argument whose first accepted value is "" is left out, unless it is required; so is one that its function does
    not have, and such entries of an object. For Java and JavaScript values are written as source text, which is what
    the documentation asks for.
    """
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
