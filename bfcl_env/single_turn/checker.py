"""Judges the calls of one message by a single-turn task's accepted answers: BFCL's verdict, and ours.

BFCL's checker (`ast_checker.py` of bfcl-eval 2026.3.23) compares names and arguments; nothing is run. This one is
written anew, because BFCL's evaluates patterns that take exponential time and raises on some messages; tests hold the
two against each other. `passed_official` is BFCL's verdict. `passed` is by the same rules with its mistakes mended:
`differences.py` lists every one. A message beyond the bounds is a mismatch of the kind `limit`, whatever BFCL says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

from bfcl_env.single_turn import java, javascript, values
from interaction.call import Call, CallError, make_call

Language = Literal["python", "java", "javascript"]

Wrong = tuple[str, str | None]
"""Kind of mismatch, and the argument it is about, if it is about one."""

_TYPES = {"python": values, "java": java, "javascript": javascript}

MAX_CALLS = 32
"""Calls of one message that are compared with as many accepted ones. BFCL's tasks have at most 8. All of them together
are bounded as one call is elsewhere (`interaction.call`), because each is compared with each."""
MAX_SHOWN = 200
"""Characters of a value in a mismatch."""

Fits = Callable[[int, int], bool]
"""Whether an accepted call, by its index, is fulfilled by a call; asked only as far as needed, and more than once."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why calls did not pass. It names accepted values: for people and rewards, never for a model's eyes."""

    kind: str
    """BFCL's error type without the name of its function, or `limit`, `unknown_type`, `unknown_function`."""
    function: str
    argument: str
    """Empty where it is not about one."""
    expected: str
    found: str
    """At most MAX_SHOWN characters, as `expected`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Both verdicts on one message."""

    passed: bool
    passed_official: bool
    mismatches: tuple[Mismatch, ...] = ()
    """Why `passed` is false; empty where it is true. With parallel calls: each accepted one that is left without a
    call, and what is wrong with the first call left that is of its function."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A function with its document, and the accepted values of each argument."""

    function: str
    accepted: Mapping[str, Sequence[Any]]
    properties: Mapping[str, Mapping[str, Any]]
    """Argument -> its document."""
    required: Sequence[str]
    documented: bool
    """Whether the task has a document of that function; without one no call is right."""

    @classmethod
    def of(cls, item: Mapping[str, Mapping[str, Sequence[Any]]], functions: Sequence[Mapping[str, Any]]) -> Self:
        """From BFCL's `{function: {argument: [accepted values]}}`."""
        ((name, accepted),) = item.items()
        document = next((document for document in functions if document["name"] == name), None)
        parameters = document["parameters"] if document else {}
        return cls(name, accepted, parameters.get("properties", {}), parameters.get("required", ()), bool(document))

    def find_wrong(self, call: Call, language: Language, *, official: bool) -> Wrong | None:
        """The first thing that is wrong with a call, in BFCL's order; None where it is accepted."""
        if not self.documented:
            return "unknown_function", None
        if call.name != self.function:
            return "wrong_func_name", None
        for name in self.required:
            if name not in call.arguments:
                return "missing_required", name
        if call.positional and not official:
            return "unexpected_param", None
        for name, value in call.arguments.items():
            if name not in self.properties or name not in self.accepted:
                return "unexpected_param", name
            if kind := self._find_wrong_value(name, value, language, official):
                return kind, name
        for name, allowed in self.accepted.items():
            if name not in call.arguments and values.LEFT_OUT not in allowed:
                return "missing_optional", name
        return None

    def _find_wrong_value(self, name: str, value: Any, language: Language, official: bool) -> str | None:
        document, types = self.properties[name], _TYPES[language]
        kind, inner = document.get("type"), None
        if kind in types.COLLECTIONS:
            inner = document.get("items", {}).get("type")
        if kind not in types.TYPES or (kind in types.COLLECTIONS and inner not in types.TYPES):
            return "unknown_type"
        if language != "python":
            if type(value) is not str:
                return "type_error:java" if language == "java" else "type_error:js"
            value = (java if language == "java" else javascript).convert(value, kind, inner, official=official)
        elif kind == "tuple" and type(value) is tuple:
            value = list(value)
        elif kind == "float" and type(value) is int:
            value = _as_float(value)
        checked = None if inner is None or (inner == "any" and not official) else types.TYPES[inner]
        return values.find_mismatch(value, self.accepted[name], types.TYPES[kind], checked, official=official)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:  # BFCL raises.
        return float("inf") if value > 0 else float("-inf")


def check_calls(
    calls: Sequence[Call],
    functions: Sequence[Mapping[str, Any]],
    accepted: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]],
    language: Language,
    *,
    parallel: bool,
) -> Checked:
    """Compares the calls of one message with a task's accepted answers.

    Names are compared with those of `functions`, letter by letter: where a model has to see other names (without dots,
    as some servers demand), both documents and answers must carry them.

    Args:
        calls: what the model wrote; for Java and JavaScript every argument is a text with a literal of that language.
        functions: BFCL's documents, with the types of `language`.
        accepted: BFCL's ground truth: one `{function: {argument: [accepted values]}}` for each call, "" among the
            values where the argument may be left out.
        language: of the functions.
        parallel: several calls, in any order; without it exactly one.
    """
    if len(calls) != len(accepted) or not (parallel or len(calls) == 1):
        return _failed(Mismatch("wrong_count", "", "", _count(len(accepted)), _count(len(calls))))
    if len(calls) > MAX_CALLS:
        return _failed(Mismatch("limit", "", "", f"at most {_count(MAX_CALLS)}", _count(len(calls))))
    try:
        make_call("message", {"calls": [[call.name, call.arguments, call.positional] for call in calls]})
    except CallError as error:
        return _failed(Mismatch("limit", "", "", str(error), ""))
    answers = [Answer.of(item, functions) for item in accepted]

    @cache
    def find_wrong(index: int, call: int, official: bool = False) -> Wrong | None:
        return answers[index].find_wrong(calls[call], language, official=official)

    size = len(calls)
    passed_official = unmatched_greedily(size, lambda index, call: find_wrong(index, call, True) is None) is None
    alone, left = unmatched(size, lambda index, call: find_wrong(index, call) is None)
    mismatches = []
    for index in alone:
        answer = answers[index]
        if parallel:
            names = _cut(", ".join(calls[call].name for call in left))
            mismatches.append(Mismatch("cannot_find_match", answer.function, "", _short(answer.accepted), names))
        near = next((call for call in left if not parallel or calls[call].name == answer.function), None)
        if near is not None and (wrong := find_wrong(index, near)):
            mismatches.append(_mismatch(calls[near], answer, wrong))
    return Checked(not mismatches, passed_official, tuple(mismatches))


def unmatched_greedily(size: int, fits: Fits) -> int | None:
    """The first accepted call without a call, as BFCL looks for them: each takes the first that fits and is free."""
    taken: set[int] = set()
    for index in range(size):
        free = next((call for call in range(size) if call not in taken and fits(index, call)), None)
        if free is None:
            return index
        taken.add(free)
    return None


def unmatched(size: int, fits: Fits) -> tuple[list[int], list[int]]:
    """Accepted calls, and calls, that stay alone in a largest matching (augmenting paths; cubic in their number)."""
    owner: dict[int, int] = {}

    def place(index: int, seen: set[int]) -> bool:
        for call in range(size):
            if call not in seen and fits(index, call):
                seen.add(call)
                if call not in owner or place(owner[call], seen):
                    owner[call] = index
                    return True
        return False

    alone = [index for index in range(size) if not place(index, set())]
    return alone, [call for call in range(size) if call not in owner]


def check_relevance(calls: Sequence[Call], wanted: bool) -> Checked:
    """Whether a message has a call (`wanted`: BFCL's relevance) or none (irrelevance), whatever it calls."""
    if bool(calls) == wanted:
        return Checked(True, True)
    kind = "relevance_error:decoder_failed" if wanted else "irrelevance_error:decoder_success"
    return _failed(Mismatch(kind, "", "", "at least 1 call" if wanted else _count(0), _count(len(calls))))


def _mismatch(call: Call, answer: Answer, wrong: Wrong) -> Mismatch:
    kind, argument = wrong
    if argument is None:
        expected, found = answer.function, _cut(call.name)
        if kind == "unexpected_param":
            expected, found = "no positional arguments", _short(call.positional)
        elif kind == "unknown_function":
            expected = f"a document of {answer.function} among the task's functions"
        return Mismatch(kind, answer.function, "", _cut(expected), found)
    documented = answer.properties.get(argument, {}).get("type")
    if kind.startswith("type_error") or kind == "unknown_type":
        expected = str(documented)
    elif kind == "unexpected_param":
        expected = ", ".join(name for name in answer.accepted if name in answer.properties)
    else:
        expected = repr(answer.accepted.get(argument, ()))
    found = _short(call.arguments[argument]) if argument in call.arguments else ""
    return Mismatch(kind, answer.function, _cut(argument), _cut(expected), found)


def _failed(mismatch: Mismatch) -> Checked:
    return Checked(False, False, (mismatch,))


def _count(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


def _short(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
