"""Proposes tasks: operations drawn and carried out one after another on live instances, and words that ask for them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bfcl_env.execution import new_instances
from bfcl_env.scenarios import Scenario
from bfcl_env.source import CATEGORIES as FORMS
from bfcl_env.synthesis import words
from bfcl_env.synthesis.office import Files, Mathematics, Messages, Posts, Tickets, Trading
from bfcl_env.synthesis.operation import Domain, Done, NotNow, Operation, World, operations
from bfcl_env.synthesis.travel import Travel, Vehicle
from bfcl_env.synthesis.words import Words
from interaction.call import Call
from interaction.environment import Part

DOMAINS: dict[str, type[Domain]] = {
    one.owner: one for one in (Files, Mathematics, Messages, Posts, Tickets, Trading, Travel, Vehicle)
}
ATTEMPTS = 8
"""To draw an operation that the state allows."""

UNSAID = {
    **{"account": "account", "address": "address", "amount": "number", "description": "text", "limit": "amount"},
    **{"message": "message", "money": "amount", "new_file": "file name", "new_folder": "folder name"},
    **{"new_person": "name", "passport": "passport number", "post": "text", "price": "price", "text": "text"},
    "title": "title",
}
"""Slots whose values no state holds, and what the user calls them."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, and the calls that it takes."""

    user: str
    gold: tuple[Call, ...] = ()
    implied: tuple[frozenset[str], ...] = ()
    """Of each call, the arguments that the wording implies."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A task before it is verified."""

    category: str
    classes: tuple[str, ...]
    config: dict[str, Any]
    turns: tuple[Turn, ...]
    program: str
    """The operations of each turn."""
    revealed: dict[int, str] = field(default_factory=dict)
    """Turn -> the function that is published in it."""
    unsaid: dict[int, Any] = field(default_factory=dict)
    """Turn whose request lacks a value -> that value."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What tasks are wanted.

    Attributes:
        classes: of which tasks take one or two.
        turns: the fewest and the most requests.
        operations: the most in one turn.
        forms: categories of BFCL.
        words: the set of wordings; no two sets share one.
        linked: whether some request must mean what an earlier one has left, such as "the new ticket".
    """

    classes: tuple[str, ...] = tuple(DOMAINS)
    turns: tuple[int, int] = (1, 4)
    operations: int = 2
    forms: tuple[str, ...] = FORMS
    words: Words = "plain"
    linked: bool = False


def propose(random: Random, part: Part, shape: Shape) -> Proposal | None:
    """A task of a part, or None where the operations that were drawn do not fit."""
    category = random.choice(shape.forms)
    count = min(len(shape.classes), random.choice((1, 1, 2)))
    classes = tuple(random.sample(shape.classes, count))
    world = World(random, part, random.choice(("", "'", '"')))
    world.domains = {name: DOMAINS[name](world) for name in classes}
    config = {name: domain.start() for name, domain in world.domains.items()}
    states = tuple((name, json.dumps(state)) for name, state in config.items())
    world.instances = new_instances(Scenario("", category, 0, classes, (), states))
    left = {name: operation for owner in classes for name, operation in operations()[owner].items()}
    left |= {name: one for name, one in operations()["composite"].items() if one.classes <= {*classes}}
    drawn: list[tuple[str, list[Done]]] = []
    lengths = [random.randint(1, shape.operations) for _ in range(random.randint(*shape.turns))]
    program = ""
    try:
        for number, length in enumerate(lengths):
            world.preface = []
            steps: list[Done] = []
            for at in range(length):
                program += "+" if steps else ";" if drawn else ""
                last = (number, at) == (len(lengths) - 1, length - 1)
                fits = left
                if last and program:  # a single operation is in all parts, with other names and values
                    fits = {name: one for name, one in left.items() if words.part_of(program + name) == part}
                name, step = _step(world, fits, shape.words)
                del left[name]
                program += name
                steps.append(step)
            drawn.append((" ".join(f"{text[0].upper()}{text[1:]}." for text in world.preface), steps))
    except NotNow:
        return None
    if shape.linked and not world.linked:
        return None
    turns = tuple(_turn(random, shape.words, *one) for one in drawn)
    proposal = Proposal(category, classes, config, turns, program)
    if category == "multi_turn_miss_func":
        return _without_function(random, proposal)
    if category == "multi_turn_miss_param":
        return _without_value(random, proposal, drawn, shape.words)
    return proposal


def _step(world: World, menu: dict[str, Operation], kind: Words) -> tuple[str, Done]:
    """An operation that the state allows, carried out, with its name."""
    weights = [operation.weight * (6 if name.startswith("composite") else 1) for name, operation in menu.items()]
    for _ in range(ATTEMPTS if menu else 0):
        name, operation = world.random.choices([*menu.items()], weights)[0]
        told, preface, linked = {*world.told}, [*world.preface], world.linked
        try:
            return name, world.carry_out(operation, world.random.choice(operation.wordings[kind]))
        except NotNow:
            if world.results:
                raise  # a call has been made
            world.told, world.preface, world.linked = told, preface, linked
    raise NotNow


def _turn(random: Random, kind: Words, preface: str, steps: Sequence[Done]) -> Turn:
    wish = steps[0].wish
    for done in steps[1:]:
        joint = random.choice(words.JOINTS[kind])
        wish += joint + (_capital(done.wish) if joint.endswith(". ") else done.wish)
    register = random.choice(words.REGISTERS[kind])
    text = register.format(wish=wish, Wish=_capital(wish), occasion=random.choice(words.OCCASIONS))
    calls = tuple(call for done in steps for call in done.calls)
    return Turn(f"{preface} {text}".strip(), calls, tuple(item for done in steps for item in done.implied))


def _capital(wish: str) -> str:
    return wish[0].upper() + wish[1:]


def _without_function(random: Random, proposal: Proposal) -> Proposal | None:
    """One request comes before a function that it needs."""
    at = random.randrange(len(proposal.turns))
    turn, earlier = proposal.turns[at], {call.name for turn in proposal.turns[:at] for call in turn.gold}
    names = sorted({call.name for call in turn.gold} - earlier)
    if not names:
        return None
    split = Turn(turn.user), replace(turn, user="")
    return replace(proposal, turns=_spliced(proposal, at, split), revealed={at + 1: random.choice(names)})


def _without_value(
    random: Random, proposal: Proposal, drawn: list[tuple[str, list[Done]]], kind: Words
) -> Proposal | None:
    """One request lacks a value, which the user gives in the next turn."""
    found = [
        (at, number, slot)
        for at, (_, steps) in enumerate(drawn)
        for number, done in enumerate(steps)
        for slot in done.words
        if slot in UNSAID
    ]
    if not found:
        return None
    at, number, slot = random.choice(found)
    preface, steps = drawn[at]
    done, named = steps[number], UNSAID[slot]
    vague = replace(done, words={**done.words, slot: f"[{named} to follow]"})
    asked = _turn(random, kind, preface, [*steps[:number], vague, *steps[number + 1 :]])
    told = random.choice(("The {0} is {1}.", "I forgot to say: the {0} is {1}.", "As to the {0}: {1}."))
    split = Turn(asked.user), replace(proposal.turns[at], user=told.format(named, done.words[slot]))
    return replace(proposal, turns=_spliced(proposal, at, split), unsaid={at: done.words[slot]})


def _spliced(proposal: Proposal, at: int, turns: tuple[Turn, Turn]) -> tuple[Turn, ...]:
    return (*proposal.turns[:at], *turns, *proposal.turns[at + 1 :])


def entry_of(proposal: Proposal, identifier: str, part: Part) -> dict[str, Any]:
    """The proposal as an entry in BFCL's form."""
    missed = {"missed_function": {str(at): [name] for at, name in proposal.revealed.items()}}
    return {
        "id": identifier,
        "question": [[{"role": "user", "content": turn.user}] if turn.user else [] for turn in proposal.turns],
        "initial_config": json.loads(json.dumps(proposal.config)),
        "involved_classes": [*proposal.classes],
        **(missed if proposal.revealed else {}),
        "ground_truth": [[str(call) for call in turn.gold] for turn in proposal.turns],
        "part": part,
        "program": proposal.program,
    }
