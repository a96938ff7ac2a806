"""A call in Python syntax, as BFCL writes its gold and some models their calls.

Text is parsed with `ast` and only literals are taken from the tree; nothing is evaluated, so what a model writes
cannot run code.
"""

import ast
import inspect
from typing import TYPE_CHECKING, Any

from bfcl_env.source import function_docs, load_class
from interaction.call import MAX_CHARS, MAX_DEPTH, SCALARS, Call, CallError, make_call
from interaction.protocol.python_calls import dotted_name

if TYPE_CHECKING:
    from bfcl_env.scenarios import Scenario

_NUMBERS = (int, float)


def _literal(node: ast.expr, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise CallError(f"arguments nested too deeply: at most {MAX_DEPTH} levels are allowed")
    if isinstance(node, ast.Constant) and type(node.value) in SCALARS:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number: Any = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if type(number) in _NUMBERS:
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.List):
        return [_literal(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item, depth + 1) for item in node.elts)
    if isinstance(node, ast.Dict):
        keys = []
        for key in node.keys:
            value = None if key is None else _literal(key, depth + 1)
            if key is None or isinstance(value, list | tuple | dict):
                raise CallError("dictionary keys must be text or numbers, and ** is not allowed")
            keys.append(value)
        return dict(zip(keys, (_literal(item, depth + 1) for item in node.values), strict=True))
    raise CallError(f"arguments must be literal values, not {type(node).__name__}")


def parse_call(text: str, scenario: "Scenario") -> Call:
    """Reads one call in Python syntax, such as `cd(folder='document')`.

    Positional arguments are bound to keywords in the order of the function's signature, as BFCL executes them (the
    documentation of `purchase_insurance` has another). Unknown functions and
    wrong, missing or surplus arguments parse: `Episode.execute` answers them with BFCL's error text.

    Raises:
        CallError: the text is not exactly one call of literals, repeats a keyword, or exceeds a bound.
    """
    if not isinstance(text, str):
        raise CallError(f"a call must be text, not {type(text).__name__}")
    if len(text) > MAX_CHARS:
        raise CallError(f"call too long: {len(text)} characters, at most {MAX_CHARS} are allowed")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise CallError(
            f"not a function call: {getattr(error, 'msg', None) or error or type(error).__name__}"
        ) from None
    if not isinstance(tree, ast.Call):
        raise CallError(f"expected one function call such as name(key='value'), got {type(tree).__name__}")
    name = dotted_name(tree.func)
    if name is None:
        raise CallError("the called function must be a plain name")
    positional = tuple(_literal(item) for item in tree.args)
    arguments: dict[str, Any] = {}
    for keyword in tree.keywords:
        if keyword.arg is None:
            raise CallError("** is not allowed in a call")
        if keyword.arg in arguments:
            raise CallError(f"keyword argument repeated: {keyword.arg}")
        arguments[keyword.arg] = _literal(keyword.value)
    docs = function_docs()
    owner = next((class_name for class_name in scenario.classes if name in docs[class_name]), None)
    if positional and owner is not None:
        names = list(inspect.signature(getattr(load_class(owner), name)).parameters)[1:]
        bound = dict(zip(names, positional, strict=False))
        if len(positional) <= len(names) and bound.keys().isdisjoint(arguments):
            arguments, positional = {**bound, **arguments}, ()
    return make_call(name, arguments, positional)
