"""One accepted call of a task, and what is wrong with a call that is compared with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from bfcl_env.single_turn import java, javascript, values
from interaction.call import Call

Language = Literal["python", "java", "javascript"]

Wrong = tuple[str, str | None]
"""Kind of mismatch, and the argument it is about, if it is about one."""

_TYPES = {"python": values, "java": java, "javascript": javascript}
_WRONG_TYPE = {"java": "type_error:java", "javascript": "type_error:js"}


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
                return _WRONG_TYPE[language]
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
