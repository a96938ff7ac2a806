"""The calculator of retail and airline: text of numbers, + - * / and parentheses, never evaluated by Python.

Refused although upstream computes it: `**`, which its documentation does not name and which turns a few characters into
numbers without end, and texts of more than 1,000 characters. With these two bounds no number outgrows what 1,000 digits
can multiply to, so that nothing here needs a clock. (`//` is allowed, as upstream.)
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

from tau_env.attempt import Overfull, Refused

MAX_CHARS = 1_000
_ALLOWED = frozenset("0123456789+-*/(). ")
_TWO_SIDED: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_ONE_SIDED: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def calculate(state: Any, expression: str) -> str:
    """The value, rounded to two places, as text.

    Raises:
        Refused: it is no expression, or divides by zero, or overflows; in upstream's words.
        Overfull: it is too long, or raises to a power.
    """
    if not _ALLOWED.issuperset(expression):
        raise Refused("Invalid characters in expression")
    if len(expression) > MAX_CHARS:
        raise Overfull(f"Expression too long: at most {MAX_CHARS} characters are allowed")
    try:
        return str(round(float(_value(ast.parse(expression.lstrip(" "), mode="eval").body)), 2))
    except ArithmeticError as error:
        raise Refused(f"Cannot evaluate expression: {error}") from error
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise Refused(f"Invalid expression: {error}") from error


def _value(tree: ast.expr) -> float:
    """Computed with a stack of its own: a sum of 500 terms is a tree 500 deep."""
    values: list[float] = []
    open_nodes: list[tuple[ast.expr, bool]] = [(tree, False)]
    while open_nodes:
        node, ready = open_nodes.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            values.append(node.value)
        elif isinstance(node, ast.BinOp) and type(node.op) in _TWO_SIDED:
            if ready:
                right = values.pop()
                values.append(_TWO_SIDED[type(node.op)](values.pop(), right))
            else:
                open_nodes += [(node, True), (node.right, False), (node.left, False)]
        elif isinstance(node, ast.UnaryOp) and type(node.op) in _ONE_SIDED:
            if ready:
                values.append(_ONE_SIDED[type(node.op)](values.pop()))
            else:
                open_nodes += [(node, True), (node.operand, False)]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            raise Overfull("Invalid expression: ** is not supported")
        else:
            raise Refused("Invalid expression: only numbers, +, -, *, /, //, ** and parentheses are allowed")
    return values.pop()
