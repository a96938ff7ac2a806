"""A call in Python syntax, as BFCL writes its gold and some models their calls.

Text is parsed with `ast`, and only literals are taken from the tree (`ast.literal_eval`, which runs no code).
"""

import ast
import inspect
from typing import TYPE_CHECKING, Any

from bfcl_env.source import function_docs, load_class
from interaction.call import MAX_CHARS, Call, CallError, make_call
from interaction.protocol.python_calls import dotted_name

if TYPE_CHECKING:
    from bfcl_env.scenarios import Scenario


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
    names = [keyword.arg for keyword in tree.keywords]
    if None in names or len({*names}) < len(names):
        raise CallError("** is not allowed in a call" if None in names else "a keyword argument is repeated")
    try:
        positional: tuple[Any, ...] = tuple(map(ast.literal_eval, tree.args))
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise CallError("arguments must be literal values") from None
    docs = function_docs()
    owner = next((class_name for class_name in scenario.classes if name in docs[class_name]), None)
    if positional and owner is not None:
        order = list(inspect.signature(getattr(load_class(owner), name)).parameters)[1:]
        bound = dict(zip(order, positional, strict=False))
        if len(positional) <= len(order) and bound.keys().isdisjoint(arguments):
            arguments, positional = {**bound, **arguments}, ()
    return make_call(name, arguments, positional)
