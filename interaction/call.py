"""A function call as data: a name and literal arguments. Nothing in it is ever evaluated, imported or looked up.

Sizes are bounded here, because everything later (copying, executing, comparing) costs in proportion to them.
"""

from dataclasses import dataclass
from typing import Any

MAX_CHARS = 50_000
"""Characters of a call's source, and of all strings in its arguments together. The longest gold call has 6,700."""
MAX_DEPTH = 20
MAX_ITEMS = 5_000
MAX_INT_BITS = 4_000

SCALARS = (str, int, float, bool, type(None))


class CallError(ValueError):
    """The text or data is not one call with literal arguments within the bounds."""


@dataclass(frozen=True, slots=True)
class Call:
    """One function call. Every value is a literal: text, number, bool, None, list, tuple or dict of these."""

    name: str
    arguments: dict[str, Any]
    positional: tuple[Any, ...] = ()
    """Positional arguments, only where they could not be bound to keywords (unknown function, too many of them,
    or one given by keyword as well): kept so that `execute` can return Python's own words for the mistake."""

    def __str__(self) -> str:
        parts = [repr(value) for value in self.positional]
        parts += [f"{key}={value!r}" for key, value in self.arguments.items()]
        return f"{self.name}({', '.join(parts)})"


class _Budget:
    """Counts characters and items while arguments are copied."""

    def __init__(self) -> None:
        self.chars = MAX_CHARS
        self.items = MAX_ITEMS

    def check(self) -> None:
        """Raises CallError if a bound is exceeded."""
        if self.items < 0:
            raise CallError(f"too many values in the arguments: at most {MAX_ITEMS} are allowed")
        if self.chars < 0:
            raise CallError(f"arguments too long: at most {MAX_CHARS} characters are allowed")

    def copy(self, value: Any, depth: int = 0) -> Any:
        """A deep copy of a literal value.

        Raises:
            CallError: a bound is exceeded, or the value is not a literal.
        """
        self.items -= 1
        kind = type(value)
        if kind is str:
            self.chars -= len(value)
        self.check()
        if kind is int and value.bit_length() > MAX_INT_BITS:
            raise CallError(f"integer too large: at most {MAX_INT_BITS} bits are allowed")
        if kind in SCALARS:
            return value
        if depth >= MAX_DEPTH:
            raise CallError(f"arguments nested too deeply: at most {MAX_DEPTH} levels are allowed")
        if kind is list or kind is tuple:
            return kind(self.copy(item, depth + 1) for item in value)
        if kind is dict:
            for key in value:
                if type(key) not in SCALARS:
                    raise CallError(f"dictionary keys must be text or numbers, not {type(key).__name__}")
            return {self.copy(key, depth + 1): self.copy(item, depth + 1) for key, item in value.items()}
        raise CallError(f"arguments must be text, numbers, booleans, null, lists or objects, not {kind.__name__}")


def copy_call(call: Call) -> Call:
    """A deep copy, so that no executed call shares a list or dict with its source.

    Raises:
        CallError: the name or an argument is not a literal within the bounds.
    """
    return make_call(call.name, call.arguments, call.positional)


def make_call(name: str, arguments: dict[str, Any] | None, positional: tuple[Any, ...] = ()) -> Call:
    """A call from already decoded data, as a JSON tool call gives it; `None` stands for no arguments.

    Raises:
        CallError: the name is not text, the arguments are no object with text keys, or a bound is exceeded.
    """
    if type(name) is not str or not name:
        raise CallError("the function name must be a non-empty text")
    if len(name) > MAX_CHARS:
        raise CallError(f"function name too long: at most {MAX_CHARS} characters are allowed")
    arguments = {} if arguments is None else arguments
    if type(arguments) is not dict:
        raise CallError(f"the arguments must be an object, not {type(arguments).__name__}")
    budget = _Budget()
    copied = {}
    for key, value in arguments.items():
        if type(key) is not str:
            raise CallError(f"argument names must be text, not {type(key).__name__}")
        kind = type(value)
        if kind is str:  # By hand, without a function call: this loop is a fifth of what a short call costs.
            budget.chars -= len(value)
        elif kind is not float and kind is not bool:
            value = budget.copy(value)
        budget.chars -= len(key)
        copied[key] = value
    budget.items -= 2 * len(copied)
    budget.check()
    return Call(name, copied, budget.copy(tuple(positional)) if positional else ())
