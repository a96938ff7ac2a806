"""A module's text as it reads once its package stands beneath another one.

What changes is the module of an absolute import; a text that is a module's name and nothing else, as `import_module`,
`files` and tables of modules take it; and a module after `-m`, in commands and in words that name them. A text of one
word is a module's name only where the word has an underscore: `rewards` may be a word. f-strings stay as they are.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Set
from itertools import accumulate

_FROM = re.compile(r"from\s+")
_LITERAL = re.compile(r"""[rRuU]?("{3}|'{3}|"|')(.*)\1""", re.DOTALL)
_OPTION = re.compile(r"-m ([a-z_]\w*(?:\.\w+)*)")


def moved(source: str, prefix: str, modules: Set[str]) -> str:
    """`source` with `prefix.` before every module of `modules` that it names.

    Args:
        source: text of a module of today.
        prefix: package beneath which all of them come to stand.
        modules: names of today, packages included.

    Raises:
        ValueError: an import binds the first part of a dotted name, which would be another one then.
    """
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for place in sorted({*_imports(source, starts, modules), *_texts(source, starts, modules)}, reverse=True):
        source = f"{source[:place]}{prefix}.{source[place:]}"
    return source


def _imports(source: str, starts: list[int], modules: Set[str]) -> Iterator[int]:
    """Where, in `source`, modules of absolute imports begin."""
    packages = {name.partition(".")[0] for name in modules}
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            if wrong := [item.name for item in node.names if item.name.partition(".")[0] in packages]:
                raise ValueError(f"line {node.lineno}: `import {wrong[0]}` cannot be moved; write `from ... import`")
        elif isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in packages:
            line = lines[node.lineno - 1]
            column = len(line.encode()[: node.col_offset].decode())  # ast counts bytes
            found = _FROM.match(line, column)
            assert found is not None, line
            yield starts[node.lineno - 1] + found.end()


def _texts(source: str, starts: list[int], modules: Set[str]) -> Iterator[int]:
    """Where, in `source`, modules that texts name begin."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        literal = _LITERAL.fullmatch(token.string) if token.type == tokenize.STRING else None
        if literal is None:
            continue
        begins = starts[token.start[0] - 1] + token.start[1]
        if literal[2] in modules and re.search(r"[._]", literal[2]):
            yield begins + literal.start(2)
        yield from (begins + found.start(1) for found in _OPTION.finditer(token.string) if found[1] in modules)
