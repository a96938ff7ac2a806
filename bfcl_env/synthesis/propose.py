"""Proposes tasks: operations drawn and carried out one after another on live instances, and words that ask for them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bfcl_env.execution import new_instances
from bfcl_env.synthesis import words
from bfcl_env.synthesis.files import Files
from bfcl_env.synthesis.mathematics import Mathematics
from bfcl_env.synthesis.messages import Messages
from bfcl_env.synthesis.operation import Domain, Done, NotNow, Operation, World, operations, scenario_of_state
from bfcl_env.synthesis.posts import Posts
from bfcl_env.synthesis.tickets import Tickets
from bfcl_env.synthesis.trading import Trading
from bfcl_env.synthesis.travel import Travel
from bfcl_env.synthesis.vehicle import Vehicle
from bfcl_env.synthesis.words import part_of
from interaction.call import Call
from interaction.environment import Part

DOMAINS: dict[str, type[Domain]] = {
    one.owner: one for one in (Files, Mathematics, Messages, Posts, Tickets, Trading, Travel, Vehicle)
}
FORMS = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
ATTEMPTS = 8
"""To draw an operation that the state allows."""

UNSAID = {
    "account": "account",
    "address": "address",
    "amount": "number",
    "description": "text",
    "limit": "amount",
    "message": "message",
    "money": "amount",
    "new_file": "file name",
    "new_folder": "folder name",
    "new_person": "name",
    "passport": "passport number",
    "post": "text",
    "price": "price",
    "text": "text",
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
        unseen: only wordings that no other task has.
    """

    classes: tuple[str, ...] = tuple(DOMAINS)
    turns: tuple[int, int] = (1, 4)
    operations: int = 2
    forms: tuple[str, ...] = FORMS
    unseen: bool = False


def propose(random: Random, part: Part, shape: Shape) -> Proposal | None:
    """A task of a part, or None where the operations that were drawn do not fit."""
    category = random.choice(shape.forms)
    count = min(len(shape.classes), random.choice((1, 1, 2)))
    classes = tuple(random.sample(shape.classes, count))
    world = World(random, part, random.choice(("", "'", '"')))
    world.domains = {name: DOMAINS[name](world) for name in classes}
    config = {name: domain.start() for name, domain in world.domains.items()}
    scenario = scenario_of_state(classes, config, category)
    world.instances = new_instances(scenario)
    menu = [*_menu(classes)]
    turns: list[tuple[str, list[tuple[str, Done]]]] = []
    lengths = [random.randint(1, shape.operations) for _ in range(random.randint(*shape.turns))]
    program = ""
    try:
        for number, length in enumerate(lengths):
            world.preface = []
            steps: list[tuple[str, Done]] = []
            for at in range(length):
                last = (number, at) == (len(lengths) - 1, length - 1)
                between = "+" if steps else ";" if turns else ""
                taken = {name for _, done in turns for name, _ in done} | {name for name, _ in steps}
                fits = [
                    item
                    for item in menu
                    if item[0] not in taken and not (last and part_of(f"{program}{between}{item[0]}") != part)
                ]
                step = _step(world, fits, shape.unseen)
                program += between + step[0]
                steps.append(step)
            turns.append((" ".join(f"{text[0].upper()}{text[1:]}." for text in world.preface), steps))
    except NotNow:
        return None
    made = _Made(random, shape.unseen, category, classes, config, program, turns)
    return made.proposal()


def _menu(classes: Sequence[str]) -> Iterator[tuple[str, Operation]]:
    for name in classes:
        yield from operations()[name].items()
    yield from (item for item in operations()["composite"].items() if item[1].classes <= {*classes})


def _step(world: World, menu: list[tuple[str, Operation]], unseen: bool) -> tuple[str, Done]:
    for _ in range(ATTEMPTS if menu else 0):
        weights = [operation.weight * (6 if name.startswith("composite") else 1) for name, operation in menu]
        name, operation = world.random.choices(menu, weights)[0]
        *seen, kept = operation.wordings
        told, preface = {*world.told}, [*world.preface]
        try:
            return name, world.carry_out(operation, kept if unseen else world.random.choice(seen))
        except NotNow:
            if world.results:
                raise  # a call has been made
            world.told, world.preface = told, preface
    raise NotNow


@dataclass(frozen=True, slots=True)
class _Made:
    """Operations that were carried out, to be put in one of the four forms."""

    random: Random
    unseen: bool
    category: str
    classes: tuple[str, ...]
    config: dict[str, Any]
    program: str
    turns: list[tuple[str, list[tuple[str, Done]]]]
    """The preface of each turn, and its operations."""

    def proposal(self) -> Proposal | None:
        turns = [self._turn(preface, [done for _, done in steps]) for preface, steps in self.turns]
        if self.category == "multi_turn_miss_func":
            return self._without_function(turns)
        if self.category == "multi_turn_miss_param":
            return self._without_value(turns)
        return self._with(turns)

    def _with(self, turns: list[Turn], **more: Any) -> Proposal:
        return Proposal(self.category, self.classes, self.config, tuple(turns), self.program, **more)

    def _turn(self, preface: str, steps: list[Done], said: str | None = None) -> Turn:
        joints = words.JOINTS_UNSEEN if self.unseen else words.JOINTS
        registers = words.REGISTERS_UNSEEN if self.unseen else words.REGISTERS
        wish = said
        if wish is None:
            wish = steps[0].wish
            for done in steps[1:]:
                joint = self.random.choice(joints)
                wish += joint + (done.wish[0].upper() + done.wish[1:] if joint == ". Afterwards " else done.wish)
        text = self.random.choice(registers).format(
            wish=wish, Wish=wish[0].upper() + wish[1:], occasion=self.random.choice(words.OCCASIONS)
        )
        calls = tuple(call for done in steps for call in done.calls)
        return Turn(f"{preface} {text}".strip(), calls, tuple(item for done in steps for item in done.implied))

    def _without_function(self, turns: list[Turn]) -> Proposal | None:
        """One request comes before a function that it needs."""
        at = self.random.randrange(len(turns))
        earlier = {call.name for turn in turns[:at] for call in turn.gold}
        names = sorted({call.name for call in turns[at].gold} - earlier)
        if not names:
            return None
        turn = turns[at]
        turns[at : at + 1] = [Turn(turn.user), Turn("", turn.gold, turn.implied)]
        return self._with(turns, revealed={at + 1: self.random.choice(names)})

    def _without_value(self, turns: list[Turn]) -> Proposal | None:
        """One request lacks a value, which the user gives in the next turn."""
        found = [
            (at, number, slot)
            for at, (_, steps) in enumerate(self.turns)
            for number, (_, done) in enumerate(steps)
            for slot in done.words
            if slot in UNSAID
        ]
        if not found:
            return None
        at, number, slot = self.random.choice(found)
        preface, steps = self.turns[at]
        done = steps[number][1]
        value = done.words[slot]
        changed = [item for _, item in steps]
        changed[number] = Done(
            done.calls, done.implied, done.wording, {**done.words, slot: f"[{UNSAID[slot]} to follow]"}
        )
        asked, whole = self._turn(preface, changed), turns[at]
        told = self.random.choice(("The {0} is {1}.", "I forgot to say: the {0} is {1}.", "As to the {0}: {1}."))
        turns[at : at + 1] = [Turn(asked.user), Turn(told.format(UNSAID[slot], value), whole.gold, whole.implied)]
        return self._with(turns, unsaid={at: value})


def entry_of(proposal: Proposal, identifier: str, part: Part) -> dict[str, Any]:
    """The proposal as an entry in BFCL's form."""
    return {
        "id": identifier,
        "question": [[{"role": "user", "content": turn.user}] if turn.user else [] for turn in proposal.turns],
        "initial_config": json.loads(json.dumps(proposal.config)),
        "involved_classes": [*proposal.classes],
        **(
            {"missed_function": {str(at): [name] for at, name in proposal.revealed.items()}}
            if proposal.revealed
            else {}
        ),
        "ground_truth": [[str(call) for call in turn.gold] for turn in proposal.turns],
        "part": part,
        "program": proposal.program,
    }
