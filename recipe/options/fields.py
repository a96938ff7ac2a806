"""What the typed settings say about each of their fields: the text under it, which Python does not keep."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from interaction.environment import ENVIRONMENTS, options_of
from interaction.users import KINDS
from recipe.settings import ours
from recipe.settings.reading import TRAINING, WARM_START

UNSET = "unset"
"""In place of a value that neither a file nor a dataclass gives."""

SIDES = ("interaction.train", "interaction.val")


@dataclass(frozen=True)
class Field:
    """One field of a typed setting."""

    key: str
    default: Any
    text: str
    """What stands under it, on one line; empty where nothing does."""
    place: str
    """File."""


def typed_fields(warm_start: bool) -> Iterator[Field]:
    """Every field of this recipe's own settings, those of environments and of users included."""
    for section, kind in (WARM_START if warm_start else TRAINING).items():
        if kind.__module__ == ours.__name__:
            yield from _walk(kind, section)
    if warm_start:
        return
    for side in SIDES:
        for name in ENVIRONMENTS:
            if (options := options_of(name)) is not None:
                yield from _walk(options, f"{side}.environments.{name}")
    for name, kind in KINDS.items():
        for found in _walk(kind, "interaction.user"):
            yield Field(found.key, found.default, f"kind={name}: {found.text}", found.place)


def variables() -> Iterator[Field]:
    """The environment variables that configurations read."""
    for found in _walk(ours.FromEnvironment, ""):
        yield Field(found.key.removeprefix("."), found.default, found.text, found.place)


def _walk(kind: type, section: str) -> Iterator[Field]:
    hints, texts, place = get_type_hints(kind), _texts(kind), f"{kind.__module__.replace('.', '/')}.py"
    for field in fields(kind):
        inner = next((one for one in (hints[field.name], *get_args(hints[field.name])) if is_dataclass(one)), None)
        key = f"{section}.{field.name}"
        if inner is None or texts.get(field.name):
            default = UNSET if field.default is MISSING else field.default
            yield Field(key, default, texts.get(field.name, ""), place)
        if inner is not None:
            yield from _walk(inner, key)  # type: ignore[arg-type]


@cache
def _texts(kind: type) -> dict[str, str]:
    """Field -> the text literal that follows it in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for item, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(following, ast.Expr):
            if isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
                found[item.target.id] = " ".join(following.value.value.split())
    return found
