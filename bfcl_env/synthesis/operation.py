"""What an operation is, and the world in which it is carried out.

An operation is data: calls whose arguments are drawn from the live state by the slots of a `Domain`, and the words
with which a user asks for them. Calls run one after another while arguments are drawn, so a later one can use what an
earlier one returned.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from random import Random
from typing import Any, ClassVar

import yaml

from bfcl_env.execution import run_call
from bfcl_env.source import function_owners
from bfcl_env.synthesis.words import Names, Words
from interaction.call import Call, copy_call
from interaction.environment import Part

_BARE = re.compile(r"[\w.#@-]+")


class NotNow(Exception):
    """The state does not allow the operation."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value, and how the user refers to it."""

    value: Any
    words: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """An argument that the operation's wording implies."""

    value: Any


@dataclass(frozen=True, slots=True)
class Got:
    """An argument that an earlier call of the operation returned, at this path of its result."""

    path: tuple[str | int, ...]
    call: int


@dataclass(frozen=True, eq=False)
class Operation:
    """Calls, and the words that ask for them."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    """Function and its arguments; a string names a slot."""
    wordings: Mapping[Words, tuple[str, ...]]
    """Wishes in the imperative, with slots in braces, by set."""
    needs: list[str] = field(default_factory=list)
    """Slots that must be true in each of its classes that has them."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What later turns can refer to -> the field of the last result that holds it."""
    weight: float = 1.0

    @cached_property
    def classes(self) -> frozenset[str]:
        """The classes that it takes."""
        return frozenset(function_owners()[name] for name, _ in self.calls)


@cache
def operations() -> dict[str, dict[str, Operation]]:
    """Class, or "composite" -> name -> operation, as operations.yaml has them."""
    read = yaml.safe_load((files(__package__) / "operations.yaml").read_text())
    return {
        owner: {f"{owner}.{at}": _operation(**item) for at, item in enumerate(items)} for owner, items in read.items()
    }


def _operation(do: str, say: str, other: str, unseen: str, **more: Any) -> Operation:
    calls = [statement.value for statement in ast.parse(do).body]  # type: ignore[attr-defined]
    made = tuple((call.func.id, {item.arg: _given(item.value) for item in call.keywords}) for call in calls)
    sets: dict[Words, str] = {"plain": say, "other": other, "unseen": unseen}
    return Operation(made, {kind: tuple(text.split(" | ")) for kind, text in sets.items()}, **more)


def _given(node: ast.expr) -> Any:
    """An argument as operations.yaml has it: a slot, a literal, or what an earlier call returned."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.List):
        return [_given(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(key): _given(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    path: list[Any] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        path.insert(0, node.attr if isinstance(node, ast.Attribute) else ast.literal_eval(node.slice))
        node = node.value
    if not path:
        return Fixed(ast.literal_eval(node))
    return Got(tuple(path[1:]), path[0]) if isinstance(path[0], int) else Got(tuple(path), -1)


class World:
    """Live instances, what was said and returned before, and the names of a part."""

    def __init__(self, random: Random, part: Part, quote: str) -> None:
        self.random = random
        self.names = Names(random, part)
        self.quote = quote
        self.domains: dict[str, Domain] = {}
        self.instances: dict[str, Any] = {}
        self.noted: dict[str, Any] = {}
        """What earlier operations have left to refer to, by kind."""
        self.drawn: dict[str, Any] = {}
        """Slot -> value, of the operation at hand."""
        self.results: list[Any] = []
        """Of the calls of the operation at hand."""
        self.linked = False
        """Whether a request means what an earlier one has left."""
        self.told: set[str] = set()
        self.preface: list[str] = []
        """What the user has to tell beside the wish of this turn."""

    def words(self, value: Any) -> str:
        """A value as a user writes it."""
        if isinstance(value, Said):
            return value.words
        if isinstance(value, list):
            return joined([self.words(item) for item in value])
        if not isinstance(value, str) or (not self.quote and _BARE.fullmatch(value)):
            return str(value)
        quote = self.quote or "'"
        return f"{quote}{value}{quote}"

    def carry_out(self, operation: Operation, wording: str) -> "Done":
        """Draw the arguments, make the calls and word the wish.

        Raises:
            NotNow: the state does not allow it. Calls may have been made.
        """
        self.drawn, self.results = {}, []
        for slot in operation.needs:
            for domain in self._domains(operation):
                if hasattr(domain, slot):
                    self.drawn[slot] = getattr(domain, slot)()
                    if not self.drawn[slot]:
                        raise NotNow
        calls, implied = [], []
        for name, arguments in operation.calls:
            call = Call(name, {key: self._argument(operation, given) for key, given in arguments.items()})
            text, error = run_call(copy_call(call), self.instances)
            if error is not None:
                raise NotNow
            try:
                self.results.append(json.loads(text))
            except ValueError:
                self.results.append(text)
            calls.append(call)
            implied.append(frozenset(key for key, given in arguments.items() if isinstance(given, Fixed)))
        values = {slot: self._slot(operation, slot) for slot in re.findall(r"{(\w+)}", wording)}
        for kind, key in operation.notes.items():
            self.noted[kind] = self.results[-1][key]
        return Done(tuple(calls), tuple(implied), wording, {slot: self.words(value) for slot, value in values.items()})

    def _domains(self, operation: Operation) -> list["Domain"]:
        return [domain for name, domain in self.domains.items() if name in operation.classes]

    def _argument(self, operation: Operation, given: Any) -> Any:
        if isinstance(given, Fixed):
            return given.value
        if isinstance(given, list):
            return [self._argument(operation, item) for item in given]
        if isinstance(given, dict):
            return {key: self._argument(operation, item) for key, item in given.items()}
        if isinstance(given, Got):
            value = self.results[given.call]
            try:
                for key in given.path:
                    value = value[key]
            except (LookupError, TypeError):
                raise NotNow from None
            return value
        value = self._slot(operation, given)
        return value.value if isinstance(value, Said) else value

    def _slot(self, operation: Operation, slot: str) -> Any:
        if slot not in self.drawn:
            value = next(getattr(domain, slot) for domain in self._domains(operation) if hasattr(domain, slot))()
            if value is None:
                raise NotNow
            self.drawn[slot] = value
        return self.drawn[slot]


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that was carried out."""

    calls: tuple[Call, ...]
    implied: tuple[frozenset[str], ...]
    """Of each call, the arguments that the wording implies."""
    wording: str
    words: dict[str, str]
    """Slot -> what the user says for it."""

    @property
    def wish(self) -> str:
        """What the user asks for."""
        return self.wording.format_map(self.words)


class Domain:
    """One of BFCL's classes: an initial state, and slots. A slot is a method that draws a value from the live state,
    or gives None where there is none."""

    owner: ClassVar[str]
    new: ClassVar[tuple[str, ...]] = ()
    """Words for what the last operation left."""
    logged_in: ClassVar["Slot"]

    def __init__(self, world: World) -> None:
        self.world, self.random, self.names = world, world.random, world.names

    @property
    def instance(self) -> Any:
        """The live instance."""
        return self.world.instances[self.owner]

    def start(self) -> dict[str, Any]:
        """An initial state."""
        raise NotImplementedError

    def logged_out(self) -> Any:
        return not self.logged_in()

    def any_of(self, values: Iterable[Any]) -> Any:
        """One of them; None if there is none."""
        found = list(values)
        return self.random.choice(found) if found else None

    def long_word(self, texts: Iterable[str]) -> Any:
        """One that is worth a search."""
        return self.any_of(word for text in texts for word in text.split() if len(word) > 4)

    def fresh(self, make: Any, taken: Iterable[Any]) -> Any:
        """A name that is not taken."""
        taken = set(taken)
        return next((name for name in (make() for _ in range(20)) if name not in taken), None)

    def referred(self, kind: str, among: Iterable[Any], share: float = 0.6) -> Any:
        """What an earlier operation left, in words without its value, or another one with it."""
        among, noted = list(among), self.world.noted.get(kind)
        if noted is not None and noted in among and self.random.random() < share:
            self.world.linked = True
            return Said(noted, self.random.choice(self.new))
        chosen = self.any_of(item for item in among if item != noted)
        return None if chosen is None else Said(chosen, f"{kind} {self.world.words(chosen)}")


Slot = Callable[[Domain], Any]


def between(low: int, high: int) -> Slot:
    return lambda domain: domain.random.randint(low, high)


def part_number(low: int, high: int) -> Slot:
    return lambda domain: domain.names.number(low, high)


def one_of(*values: Any) -> Slot:
    return lambda domain: domain.random.choice(values)


def named(make: Callable[[Names], str]) -> Slot:
    return lambda domain: make(domain.names)


def state(attribute: str, wanted: Any = None) -> Slot:
    """The value of an attribute of the instance; or whether it is `wanted`."""
    return lambda domain: (
        getattr(domain.instance, attribute) if wanted is None else getattr(domain.instance, attribute) == wanted
    )


def joined(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
