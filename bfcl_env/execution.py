"""Runs calls on BFCL's executable classes and words the results exactly as BFCL does.

A call is dispatched by dictionary look-up over documented function names, then called with its arguments as data.
State that the classes share between episodes is separated here: in long-context scenarios the credit cards and
bookings are module-level objects, tweets without mentions share one default list, and the arbitrary-precision functions
set process-wide precision.
"""

import decimal
import inspect
import json
import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from bfcl_env.limits import MAX_RESULT_CHARS, refusal
from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_docs, function_owners, load_class, load_padding
from bfcl_env.state import clone
from interaction.call import Call
from interaction.outcome import ErrorKind

_PROCESS_WIDE = frozenset({"logarithm", "square_root", "get_outside_temperature_from_google"})
"""Functions that write state of the whole process: precision, or a dict that every vehicle shares."""
_PROCESS_WIDE_LOCK = threading.Lock()

_LIST_DEFAULTS = {"post_tweet": ("tags", "mentions")}
"""Parameters whose default is a list that the function stores and others extend: it would carry over to every later
tweet of the process. Each call gets its own."""

_REFUSED_BY_BFCL = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
_IDENTIFIER = re.compile(r"\s*([^\W\d]\w*)")

_encode = json.JSONEncoder(check_circular=False).encode
"""`json.dumps` without its own look-out for cycles, which end in the same fallback by way of a RecursionError."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "dict": (dict,),
}


def new_instances(scenario: Scenario) -> dict[str, Any]:
    """Fresh instances of the scenario's classes by name, in their initial state, sharing nothing."""
    instances = {}
    for class_name, config in scenario.config_json:
        instance = load_class(class_name)()
        if hasattr(instance, "_load_scenario"):  # MathAPI has no state.
            instance._load_scenario(json.loads(config), long_context=scenario.long_context)
            if class_name == "TravelAPI" and scenario.long_context:
                instance.credit_card_list = clone(instance.credit_card_list)
                instance.booking_record = clone(instance.booking_record)
        instances[class_name] = instance
    return instances


def run_call(call: Call, instances: dict[str, Any]) -> tuple[str, ErrorKind | None]:
    """Executes one call of a function that belongs to one of the instances; returns BFCL's text and an error kind.

    The call must not share lists or dicts with anything that has to stay as it is.
    """
    instance = instances[function_owners()[call.name]]
    method = getattr(instance, call.name)
    arguments, positional = call.arguments, call.positional
    if positional:
        try:
            arguments, positional = dict(inspect.signature(method).bind(*positional, **arguments).arguments), ()
        except TypeError:
            pass  # The call below fails with Python's own words, which are what BFCL would return.
    if call.name in _LIST_DEFAULTS and not positional:
        arguments = {**{key: [] for key in _LIST_DEFAULTS[call.name]}, **arguments}
    refused = refusal(call.name, arguments, instance)
    if refused is not None:
        return f"Error during execution: {refused}", ErrorKind.LIMIT
    if call.name in _PROCESS_WIDE:
        text, error = _run_alone(method, positional, arguments)
    else:
        text, error = _run(method, positional, arguments)
    text = encodable(text)
    if len(text) > MAX_RESULT_CHARS:
        return f"{text[:MAX_RESULT_CHARS]} [cut: the result has {len(text)} characters]", ErrorKind.LIMIT
    if error is not None and schema_problem(call) is not None:
        error = ErrorKind.BAD_ARGUMENTS
    return text, error


def _run(method: Callable[..., Any], positional: tuple, arguments: dict) -> tuple[str, ErrorKind | None]:
    try:
        value = method(*positional, **arguments)
        return _render(value), ErrorKind.RESULT if _is_error(value) else None
    except (Exception, SystemExit, GeneratorExit) as error:
        # Whatever a function raises is an answer to the model, never a fault of the rollout.
        return f"Error during execution: {_message(error)}", ErrorKind.EXECUTION


def _run_alone(method: Callable[..., Any], positional: tuple, arguments: dict) -> tuple[str, ErrorKind | None]:
    with _PROCESS_WIDE_LOCK, decimal.localcontext():
        if method.__name__ != "logarithm":
            return _run(method, positional, arguments)
        import mpmath  # Installed wherever MathAPI can be imported; other scenarios do not pay for it.

        precision = mpmath.mp.prec
        try:
            return _run(method, positional, arguments)  # Rendered before the precision is restored: it shows.
        finally:
            mpmath.mp.prec = precision


def _render(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return value
    if kind is dict:
        try:
            return _dumps(value)
        except Exception:  # Objects that JSON does not know; BFCL falls back to str for whatever reason.
            return str(value)
    return str(value)


def _dumps(value: dict[Any, Any]) -> str:
    """`json.dumps`, with the two lists of 2,000 numbers in a long-context stock written once instead of every time."""
    if "MA(20)" not in value:
        return _encode(value)
    items = (f"{_encode(key)}: {_padding().get(id(item)) or _encode(item)}" for key, item in value.items())
    return f"{{{', '.join(items)}}}"


@cache
def _padding() -> dict[int, str]:
    """The JSON of BFCL's moving averages by the identity of their lists, which the module keeps and no call changes."""
    lists = [getattr(load_padding(), name) for name in ("MA_5_EXTENSION", "MA_20_EXTENSION")]
    return {id(item): _encode(item) for item in lists}


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _is_error(value: Any) -> bool:
    """True for `{"error": ...}` and for the list forms that TradingBot and TicketAPI use when nobody is logged in."""
    if type(value) is list and value:
        value = value[0]
        if type(value) is str:
            return value.startswith("Error:")
    return type(value) is dict and "error" in value


def encodable(text: str) -> str:
    """The text with lone surrogates written as escapes: no tokenizer and no file takes them as they are."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def unknown_function_text(name: str) -> str:
    """BFCL's text for a function that does not exist; a dotted name fails at its first part."""
    name = encodable(name)
    parts = name.split(".")
    attempted = parts[1] if len(parts) > 1 else parts[0]
    if attempted in _REFUSED_BY_BFCL:
        return f"Error during execution: Function call {attempted} is not allowed."
    match = _IDENTIFIER.match(name)
    return f"Error during execution: name '{match.group(1)[:200] if match else name[:200]}' is not defined"


@cache
def _schema(name: str) -> tuple[dict[str, dict], frozenset[str]]:
    parameters = function_docs()[function_owners()[name]][name]["parameters"]
    return parameters["properties"], frozenset(parameters.get("required", ()))


def schema_problem(call: Call) -> str | None:
    """What is wrong with the call's arguments according to the function's documentation, or None."""
    properties, required = _schema(call.name)
    if call.positional:
        return "too many positional arguments, or one given twice"
    for key in required.difference(call.arguments):
        return f"missing argument '{key}'"
    for key, value in call.arguments.items():
        if key not in properties:
            return f"unknown argument '{key}'"
        if value is None and key not in required:
            continue
        wanted = properties[key]["type"]
        if not _fits(value, wanted):
            return f"argument '{key}' must be {wanted}, not {type(value).__name__}"
        item_type = properties[key].get("items", {}).get("type") if wanted == "array" else None
        if item_type and not all(_fits(item, item_type) for item in value):
            return f"every item of argument '{key}' must be {item_type}"
    return None


def _fits(value: Any, wanted: str) -> bool:
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
