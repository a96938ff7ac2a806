"""An entry of several turns on BFCL's executable classes: checked without running anything, then made a scenario."""

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from bfcl_env.calls import parse_call
from bfcl_env.entries.fields import Messages, question, shown, texts
from bfcl_env.entries.file_tree import check_file_tree
from bfcl_env.entries.mistakes import Mistakes, Tell, show
from bfcl_env.scenarios import EARLY_GOLD, Scenario, scenario_of
from bfcl_env.source import CLASS_MODULES, function_docs, load_class
from interaction.call import Call, CallError

Note = Callable[[str], None]

KEYS = frozenset(
    {
        *("id", "question", "function", "initial_config", "involved_classes", "ground_truth", "missed_function"),
        *("path", "excluded_function"),  # which BFCL does not read either
    }
)


def scenario(entry: Mapping[str, Any], category: str, index: int, where: str, mistakes: Mistakes) -> Scenario | None:
    """The scenario of an entry with BFCL's keys; None if something is wrong with it.

    Args:
        index: of the entry in its file.
        where: it stands, for messages.
    """
    tell, before = mistakes.of(where), mistakes.count
    turns = question(entry, ("user",), tell)
    names = _classes(entry, tell)
    config = _config(entry, names or [], tell, lambda said: mistakes.idle.append(f"{where}: {said}"))
    for field in ("path", "excluded_function"):
        texts(entry.get(field, []), field, "a list of names", tell)
    for key in sorted(entry.keys() - KEYS):
        if meant := get_close_matches(key, ("initial_config", "missed_function"), n=1, cutoff=0.8):
            tell(key, "a key that is not read", f"{meant[0]}, or another name if something else is meant")
    if turns is None or names is None:
        return None
    functions = {name for class_name in names for name in function_docs()[class_name]}
    missed = _missed(entry, len(turns), functions, tell)
    _check_functions(entry, functions, missed, tell)
    _check_turns(turns, missed, tell)
    gold = _gold(entry, len(turns), names, missed, tell)
    if mistakes.count > before or gold is None:
        return None
    row = {
        "id": entry["id"],
        "question": turns,
        "involved_classes": names,
        "initial_config": config,
        "missed_function": missed,
    }
    return scenario_of(category, row, gold, index)


def _classes(entry: Mapping[str, Any], tell: Tell) -> list[str] | None:
    expected = f"a list of some of {', '.join(CLASS_MODULES)}"
    names = entry.get("involved_classes")
    if not isinstance(names, list) or not names:
        tell("involved_classes", shown(entry, "involved_classes"), expected)
        return None
    wrong = [name for name in names if not isinstance(name, str) or name not in CLASS_MODULES]
    for name in wrong:
        tell("involved_classes", show(name), expected)
    if not wrong and len(set(names)) < len(names):
        tell("involved_classes", show(names), "each class once")
        return None
    return None if wrong else names


def _config(entry: Mapping[str, Any], names: list[str], tell: Tell, note: Note) -> dict[str, dict[str, Any]]:
    """The initial states of the involved classes; those that are not given are the classes' own."""
    config = entry.get("initial_config", {})
    if not isinstance(config, dict):
        tell("initial_config", show(config), "an object: class name -> its initial state")
        return {}
    for name, state in config.items():
        field = f"initial_config.{name}"
        if name not in CLASS_MODULES:
            tell(field, "no class of this name", f"one of {', '.join(CLASS_MODULES)}")
        elif not isinstance(state, dict):
            tell(field, show(state), "an object: attribute -> value")
        elif name not in names:
            note(f"{field} does nothing: the class is not among involved_classes")
        else:
            for key, value in state.items():
                _check_attribute(name, key, value, tell, note)
    return {name: state for name, state in config.items() if name in names and isinstance(state, dict)}


def _check_attribute(class_name: str, key: str, value: Any, tell: Tell, note: Note) -> None:
    field, default = f"initial_config.{class_name}.{key}", initial_keys(class_name)
    if key not in default:
        if meant := get_close_matches(key, default, n=1, cutoff=0.8):
            tell(field, "an attribute that the class does not read", f"{meant[0]}, if that is meant")
        else:
            note(f"{field} does nothing: the class does not read it")
        return
    if (class_name, key) == ("GorillaFileSystem", "root"):
        check_file_tree(value, field, tell, note)
        return
    kind = list if isinstance(default[key], set) else type(default[key])
    wanted = (int, float) if kind is float else kind
    if kind in _WORDS and (not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool)):
        tell(field, show(value), _WORDS[kind])


_WORDS: dict[type, str] = {
    **{dict: "an object", list: "a list", str: "text"},
    **{bool: "true or false", int: "a whole number", float: "a number"},
}


class _Recorder(dict[str, Any]):
    """An initial state without attributes that remembers which were asked for, and what stands for them."""

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
    """The attributes that a class reads from its initial state -> their values where they are not given, if any."""
    instance, state = load_class(class_name)(), _Recorder()
    if hasattr(instance, "_load_scenario"):  # MathAPI has no state
        instance._load_scenario(state)
    return state.asked


def _missed(entry: Mapping[str, Any], turns: int, functions: set[str], tell: Tell) -> dict[str, list[str]]:
    """Turn, as text -> the functions that are withheld until then."""
    given = entry.get("missed_function", {})
    expected = f'an object: turn, "1" to "{turns - 1}" (the first is 0) -> names of functions withheld until then'
    if not isinstance(given, dict):
        tell("missed_function", show(given), expected)
        return {}
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for turn, names in given.items():
        field = f"missed_function.{turn}"
        if not turn.isdecimal() or not 1 <= int(turn) < turns:
            tell(field, "no turn of this number that withholds anything", expected)
            continue
        found[turn] = texts(names, field, expected, tell) or []
        for name in found[turn]:
            if name not in functions or name in seen:
                tell(field, show(name), f"a function of the involved classes, once: {', '.join(sorted(functions))}")
            seen.add(name)
    return found


def _check_functions(
    entry: Mapping[str, Any], functions: set[str], missed: Mapping[str, list[str]], tell: Tell
) -> None:
    """Documents of the classes' own functions may be given, as BFCL's loader does; others cannot be called."""
    given = entry.get("function", [])
    if not isinstance(given, list) or not all(isinstance(item, dict) and "name" in item for item in given):
        tell("function", show(given), "a list of documents of functions, or none: the involved classes have theirs")
        return
    names = {show(item["name"]) if not isinstance(item["name"], str) else item["name"] for item in given}
    expected = f"functions of theirs, or no `function`: {', '.join(sorted(functions))}"
    for name in sorted(names - functions):
        tell("function", f"{name!r}, which none of the involved classes has", expected)
    excluded = entry.get("excluded_function")
    withheld = {name for late in (*missed.values(), excluded if isinstance(excluded, list) else []) for name in late}
    if given and (left_out := functions - names - withheld):
        tell("function", f"no document of {', '.join(sorted(left_out))}", "those of all that can be called, or none")


def _check_turns(turns: list[Messages], missed: Mapping[str, list[str]], tell: Tell) -> None:
    for number, turn in enumerate(turns):
        if not turn and str(number) not in missed:
            tell(f"question[{number}]", "no message", "a message of the user: only a turn of missed_function has none")


def _gold(
    entry: Mapping[str, Any], turns: int, classes: list[str], missed: Mapping[str, list[str]], tell: Tell
) -> list[list[str]] | None:
    """Gold's calls by turn, as texts that can be read; None if they are none."""
    given = entry.get("ground_truth")
    if not isinstance(given, list) or not all(isinstance(calls, list) for calls in given):
        tell("ground_truth", shown(entry, "ground_truth"), "a list of calls for each turn: [[\"cd(folder='a')\"], ...]")
        return None
    if len(given) != turns:
        tell("ground_truth", f"{len(given)} lists of calls", f"one for each of the {turns} turns of question")
    if not any(given):
        tell("ground_truth", "no call in any turn", "at least one: a conversation without any is judged by nothing")
    early = EARLY_GOLD.get(entry["id"], {})
    reveal = {name: early.get(name, int(turn)) for turn, names in missed.items() for name in names}
    bare = scenario_of("", {"id": "", "question": [], "initial_config": {}, "involved_classes": classes}, [], 0)
    for number, calls in enumerate(given):
        for place, text in enumerate(calls):
            _check_call(text, f"ground_truth[{number}][{place}]", number, bare, reveal, tell)
    return given


def _check_call(text: Any, field: str, turn: int, bare: Scenario, reveal: Mapping[str, int], tell: Tell) -> None:
    try:
        call = parse_call(text, bare)
    except CallError as error:
        tell(field, f"{show(text)} ({error})", "one call with literal arguments, such as cd(folder='a')")
        return
    functions = {name: owner for owner in bare.classes for name in function_docs()[owner]}
    if call.name not in functions:
        expected = f"a function of {', '.join(bare.classes)}: {', '.join(functions)}"
        tell(field, f"{show(call.name)}, which no involved class has", expected)
    elif reveal.get(call.name, 0) > turn:
        until = f"turn {reveal[call.name]} (the first is 0)"
        tell(field, f"{call.name}, which is withheld until {until}", "a call that can be made")
    else:
        _check_arguments(call, text, load_class(functions[call.name]), field, tell)


def _check_arguments(call: Call, text: str, owner: type, field: str, tell: Tell) -> None:
    """Whether a call has the arguments of its function, whatever their values."""
    signature = inspect.signature(getattr(owner, call.name))
    try:
        signature.bind(owner, *call.positional, **call.arguments)
    except TypeError as error:
        _, *parameters = (str(item.replace(annotation=item.empty)) for item in signature.parameters.values())
        expected = f"the arguments {', '.join(parameters)}" if parameters else "no argument"
        tell(field, f"{show(text)} ({error})", expected)
