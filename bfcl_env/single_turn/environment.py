"""An attempt at a single-turn task: one message of the model, and nothing is executed.

Whatever the message is, calls, an answer or text that cannot be read, it is the only one. It passes if

- the data accepts calls: its calls are accepted (`checker`),
- no function helps: it is a refusal (`interaction.refusal`),
- one does, and BFCL does not say how: it calls, and all calls name a documented function and its parameters.

By BFCL's rule (`passed_official`) the second asks only that no call can be read, and the third that one can.

Facts of the turn: `has_gold` (whether calls are asked for), `gold_calls` (how many; at least one where BFCL does not
say), `gold_functions` and `gold_arguments` (their names, and of each the accepted values by argument, where it does)
and `passed_official`. Of a call: `gold`, which of the accepted calls it is, from 0, each given once; None if none.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bfcl_env.single_turn.checker import Checked, Language, Mismatch, check_calls, check_relevance
from interaction.call import Call
from interaction.environment import EnvironmentBase, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.record import StopReason
from interaction.refusal import is_refusal

if TYPE_CHECKING:
    from bfcl_env.single_turn.tasks import SingleTurnTask

ONE_MESSAGE = "You have one message here: write all calls that the request needs in it. No results will follow."
"""Stands before the rules of the protocol, which are those of conversations with many messages."""
NOTED = "noted; calls are not executed here"
"""The result of every call that can be made."""
LONGEST_NAME = 80
"""Characters of a name that a result repeats."""


class SingleTurnEnvironment(EnvironmentBase):
    """One attempt."""

    over: StopReason | None = StopReason.done
    """Read after a message; the first one is the last."""

    def __init__(self, task: "SingleTurnTask") -> None:
        self._task = task
        self._messages, self._functions, self._accepted = task.messages, task.functions, task.accepted
        self._calls: list[Call] = []
        self._faults = 0
        self._left = list(range(len(self._accepted)))
        self._answered: str | None = None
        self._request = self._asked()

    def begin(self) -> Request:
        """The question, with all functions."""
        return self._request

    def call(self, call: Call) -> ToolResult:
        """Notes the call."""
        if self._answered is not None:
            return ToolResult("the conversation is over", ErrorKind.LIMIT)
        self._calls.append(call)
        if (fault := misfit(call, self._functions)) is not None:
            self._faults += 1
            return fault
        return ToolResult(NOTED, facts={"gold": self._matched(call)})

    def answer(self, text: str) -> None:
        """The end."""
        self._answered = text

    def cut(self, reason: StopReason) -> bool:
        """Judged as it stands."""
        return True

    def verdicts(self) -> Verdicts:
        """Of the one turn."""
        checked, wanted = self._checked(), self._task.kind.wanted
        asked = 0 if wanted == "no call" else max(1, len(self._accepted))
        gold = [named for call in self._accepted for named in call.items()]
        facts = {
            **{"has_gold": asked > 0, "gold_calls": asked, "gold_functions": [name for name, _ in gold]},
            "gold_arguments": [arguments for _, arguments in gold],
            "passed_official": checked.passed_official,
        }
        difference = tuple(
            {
                "where": " ".join(filter(None, (item.kind, item.function, item.argument))),
                "expected": item.expected,
                "found": item.found,
            }
            for item in checked.mismatches
        )
        return Verdicts((TurnResult(self._request.user, checked.passed, difference, facts),), checked.passed)

    def _asked(self) -> Request:
        """System messages are policy; what was said before the last request stands before it."""
        system = [item["content"].strip() for item in self._messages if item["role"] == "system"]
        *before, last = (item for item in self._messages if item["role"] != "system")
        words = last["content"]
        if before:
            said = "\n".join(f"{item['role']}: {item['content']}" for item in before)
            words = f"Our conversation so far:\n{said}\n\n{words}"
        return Request(words, shown(self._functions, self._task.kind.language), "\n\n".join([*system, ONE_MESSAGE]))

    def _checked(self) -> Checked:
        kind = self._task.kind
        if kind.wanted == "accepted":
            return check_calls(self._calls, self._functions, self._accepted, kind.language, parallel=kind.parallel)
        checked = check_relevance(self._calls, wanted=kind.wanted == "any call")
        names = frozenset(item["name"] for item in self._functions)
        if checked.passed and kind.wanted == "no call" and not is_refusal(self._answered or "", names):
            return Checked(False, checked.passed_official, (Mismatch("no_answer", "", "", "a refusal", "none"),))
        if checked.passed and self._faults:
            wrong = Mismatch("misfit", "", "", "calls that fit the documentation", f"{self._faults} that do not")
            return Checked(False, checked.passed_official, (wrong,))
        return checked

    def _matched(self, call: Call) -> int | None:
        """Which accepted call it is that no call before was; its own place first, so that gold is matched in order."""
        kind = self._task.kind
        if kind.wanted == "any call":
            return 0 if len(self._calls) == 1 else None
        place = len(self._calls) - 1
        for number in sorted(self._left, key=lambda number: number != place):
            if check_calls([call], self._functions, [self._accepted[number]], kind.language, parallel=True).passed:
                self._left.remove(number)
                return number
        return None


def misfit(call: Call, functions: Sequence[Mapping[str, Any]]) -> ToolResult | None:
    """What is wrong with a call by the documentation alone, its name or those of its arguments; None if nothing."""
    document = next((item for item in functions if item["name"] == call.name), None)
    if document is None:
        return ToolResult(f"there is no function {call.name[:LONGEST_NAME]!r}", ErrorKind.UNKNOWN_FUNCTION)
    parameters = document["parameters"]
    missing = [name for name in parameters.get("required", ()) if name not in call.arguments]
    surplus = [name for name in call.arguments if name not in parameters.get("properties", {})]
    if not missing and not surplus and not call.positional:
        return None
    words = [f"missing {name}" for name in missing[:1]] + [f"unknown {name[:LONGEST_NAME]!r}" for name in surplus[:1]]
    return ToolResult(f"wrong arguments: {', '.join(words) or 'give them by name'}", ErrorKind.BAD_ARGUMENTS)


# The documentation that a model reads.


def shown(functions: Iterable[Mapping[str, Any]], language: Language) -> list[dict[str, Any]]:
    """The documents (name, description, parameters) for the prompt; those of Python's functions are as they are.

    Functions of Java and JavaScript take their values as source text, so that every protocol can write them: BFCL
    documents each parameter as a string and says in its own words, kept here, what the string holds.
    """
    if language == "python":
        return [dict(function) for function in functions]
    name = "Java" if language == "java" else "JavaScript"
    syntax = "Java 8 SDK" if language == "java" else "JavaScript"
    found = []
    for function in functions:
        properties = {key: _as_text(item, name) for key, item in function["parameters"]["properties"].items()}
        described = f"{function['description']} Note that the provided function is in {syntax} syntax."
        parameters = {**function["parameters"], "properties": properties}
        found.append({**function, "description": described, "parameters": parameters})
    return found


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
