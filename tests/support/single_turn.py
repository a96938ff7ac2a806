"""BFCL's single-turn tasks as its files hold them, its own checker, and calls made from accepted answers."""

import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bfcl_env.single_turn.checker import Language
from interaction.call import Call

CATEGORIES = (
    "simple_python simple_java simple_javascript multiple parallel parallel_multiple "
    "live_simple live_multiple live_parallel live_parallel_multiple"
).split()
LEFT_OUT = object()
"""Instead of a value: the argument does not stand in the call."""


@dataclass(frozen=True, eq=False)
class Task:
    id: str
    category: str
    functions: Sequence[Mapping[str, Any]]
    accepted: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]]

    @property
    def language(self) -> Language:
        return {"simple_java": "java", "simple_javascript": "javascript"}.get(self.category, "python")

    @property
    def parallel(self) -> bool:
        return "parallel" in self.category

    def document(self, function: str) -> Mapping[str, Any]:
        return next(document for document in self.functions if document["name"] == function)["parameters"]


@cache
def tasks(category: str) -> tuple[Task, ...]:
    spec = find_spec("bfcl_eval")
    data = Path(spec.submodule_search_locations[0]) / "data"
    name = f"BFCL_v4_{category}.json"
    entries = [json.loads(line) for line in (data / name).read_text().splitlines()]
    answers = [json.loads(line) for line in (data / "possible_answer" / name).read_text().splitlines()]
    accepted = {item["id"]: item["ground_truth"] for item in answers}
    return tuple(Task(item["id"], category, item["function"], accepted[item["id"]]) for item in entries)


@cache
def ast_checker():
    """BFCL's checker; of the module that imports all vendors' packages it needs one table."""
    name = "bfcl_eval.constants.model_config"
    stub = types.ModuleType(name)
    stub.MODEL_CONFIG_MAPPING = {"model": types.SimpleNamespace(underscore_to_dot=False)}
    before = sys.modules.get(name)
    sys.modules[name] = stub
    try:
        from bfcl_eval.constants.enums import Language as Official
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
    return ast_checker, {"python": Official.PYTHON, "java": Official.JAVA, "javascript": Official.JAVASCRIPT}


def official(task: Task, calls: Sequence[Call]) -> tuple[bool, str]:
    """BFCL's verdict and its error type, without the function's name; a checker that raises does not pass."""
    check, languages = ast_checker()
    output = [{call.name: call.arguments} for call in calls]
    try:
        result = check(task.functions, output, task.accepted, languages[task.language], task.category, "model")
    except Exception as error:
        return False, f"raised {type(error).__name__}"
    kind = result.get("error_type", "")
    if kind.split(":")[0] not in ("type_error", "value_error"):
        kind = kind.rpartition(":")[2]
    return result["valid"], "" if result["valid"] else kind.replace("unclear", "value_error:others")


def variants(accepted: Any) -> Iterator[Any]:
    """Values that one accepted value stands for: an object's keys have lists of accepted values of their own.

    An empty text says that the argument may be left out; given as it is, it is what a model may write, too.
    """
    if accepted == "":
        yield from (LEFT_OUT, "")
    elif isinstance(accepted, dict):
        keys = {key: values if isinstance(values, list) else [values] for key, values in accepted.items()}
        keys = {key: [value for item in values for value in variants(item)] for key, values in keys.items()}
        yield from one_at_a_time(keys)
    elif isinstance(accepted, list) and any(isinstance(item, dict) for item in accepted):
        for items in one_at_a_time({index: list(variants(item)) for index, item in enumerate(accepted)}):
            yield list(items.values())
    else:
        yield accepted


def one_at_a_time(choices: Mapping[Any, Sequence[Any]]) -> Iterator[dict[Any, Any]]:
    """The first choice of every key, then each other choice of each key; LEFT_OUT leaves the key out."""
    first = {key: options[0] if options else LEFT_OUT for key, options in choices.items()}
    changed = [{**first, key: option} for key, options in choices.items() for option in options[1:]]
    for chosen in [first, *changed]:
        yield {key: value for key, value in chosen.items() if value is not LEFT_OUT}


@cache
def gold(task: Task) -> tuple[tuple[Call, ...], ...]:
    """Messages of calls by the accepted answers: all first values, then every other one of each argument."""
    messages = []
    for item in task.accepted:
        ((name, accepted),) = item.items()
        properties = task.document(name)["properties"]
        choices = {key: [value for item in values for value in variants(item)] for key, values in accepted.items()}
        messages.append(
            [
                Call(
                    name, {key: render(value, properties.get(key, {}), task.language) for key, value in chosen.items()}
                )
                for chosen in one_at_a_time(choices)
            ]
        )
    first = tuple(calls[0] for calls in messages)
    others = [(index, call) for index, calls in enumerate(messages) for call in calls[1:]]
    return first, *((*first[:index], call, *first[index + 1 :]) for index, call in others)


def render(value: Any, document: Mapping[str, Any], language: Language) -> Any:
    """A value as BFCL's handlers hand it to the checker: as it is, or as a text with a literal."""
    if language == "python" or isinstance(value, str):
        return value
    kind, inner = document["type"], document.get("items", {}).get("type", "any")
    if isinstance(value, list):
        parts = ", ".join(_literal(item, inner) for item in value)
        if language == "javascript":
            return f"[{parts}]"
        if kind == "Array":
            return f"new {'Object' if inner == 'any' else inner}[]{{{parts}}}"
        return f"new ArrayList<>(Arrays.asList({parts}))"
    if isinstance(value, dict):
        if language == "javascript":
            return "{" + ", ".join(f'"{key}": {_literal(item, "any")}' for key, item in value.items()) + "}"
        puts = " ".join(f'put("{key}", {_literal(item, "any")});' for key, item in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}" if puts else "new HashMap<String, Object>()"
    return _literal(value, kind)


def _literal(value: Any, kind: str) -> str:
    return json.dumps(value) + {"long": "L", "Bigint": "n"}.get(kind, "")
