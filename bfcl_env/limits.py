"""Bounds that keep one call from taking the process down.

BFCL's functions take any number a model writes: `power(9, 99999999)` or a logarithm with 100,000 digits run for
seconds to hours inside C code that no signal interrupts, and a directory copied into itself grows without end.
A thread cannot be killed and a process per call would cost more than the calls, so the arguments are bounded.

Covered here: digits of precision, powers, rounding places, numbers hidden in text, the size of the file tree before
anything walks it, calls per episode, characters per result. In `calls`: size, depth, number and type of the arguments,
and text that is anything but one call of literals. In `execution`: functions that are not published (built-in, private,
dotted or imported names reach nothing), whatever a function raises, `SystemExit` included, the precision of mpmath and
decimal, lists and cards that BFCL shares between episodes, and characters that cannot be encoded. Nothing written by a
model is evaluated, imported, interpolated into code or used as an attribute name.

Not covered: wall-clock time as such (no timer runs; a call that a bound forgets would block its thread); memory of the
process as a whole, which many open episodes can fill (one may hold MAX_CALLS times `calls.MAX_CHARS` of text, 50 MB);
an episode that is used by two threads at once; hostile changes to the bfcl-eval package itself, which is trusted and
pinned by version and data hash; and `official`, which evaluates text and is for tests and benchmarks alone.
"""

from typing import Any

MAX_CALLS = 1_000
"""Calls per episode. The longest gold episode has 41."""
MAX_RESULT_CHARS = 200_000
"""Characters of one result. The longest gold result has under 32,000."""
MAX_DIGITS = 1_000
MAX_POWER_BITS = 100_000
MAX_TREE_DEPTH = 100
MAX_TREE_CHARS = 200_000
"""Total length of all paths of a file tree, shared subtrees counted at every place where they appear."""

_WALKS_TREE = frozenset({"find", "du", "cp", "mv"})


_FEW_DIGITS = {"logarithm": "precision", "square_root": "precision", "round_number": "decimal_places"}
"""Function -> the argument that is a number of digits."""


def refusal(name: str, arguments: dict[str, Any], instance: Any) -> str | None:
    """Why this call must not be executed, or None if it may."""
    if name in _WALKS_TREE and tree_too_large(instance.root):
        return "the file tree has become too large or too deep"
    if name in _FEW_DIGITS and _outside(arguments.get(key := _FEW_DIGITS[name])):
        return f"{key} must be between {1 if key == 'precision' else -MAX_DIGITS} and {MAX_DIGITS}"
    if name == "logarithm":
        for key in ("value", "base"):
            value = arguments.get(key)
            if isinstance(value, tuple) or (isinstance(value, str) and "e" in value.lower()):
                return f"{key} must be a number"
    if name == "power":
        base, exponent = arguments.get("base"), arguments.get("exponent")
        if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_POWER_BITS:
            return f"the result would have more than {MAX_POWER_BITS} bits"
    return None


def _outside(value: Any) -> bool:
    if isinstance(value, str):  # Libraries convert text such as "1e9" on their own.
        try:
            value = float(value)
        except ValueError:
            return False
    return isinstance(value, int | float) and not -MAX_DIGITS <= value <= MAX_DIGITS


def tree_too_large(root: Any) -> bool:
    """True if walking this directory would exceed the bounds; ends early, also on trees that contain themselves."""
    total = 0
    pending = [(root, 0, 0)]
    while pending:
        directory, depth, prefix = pending.pop()
        if depth > MAX_TREE_DEPTH:
            return True
        for name, item in directory.contents.items():
            length = prefix + len(name) + 1
            total += length
            if total > MAX_TREE_CHARS:
                return True
            if hasattr(item, "contents"):
                pending.append((item, depth + 1, length))
    return False
