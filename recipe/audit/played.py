"""The process that plays: an environment may hang, exit or crash in it, and what it grows by is measured in it.

    python -m recipe.audit.played DESCRIPTOR ARGUMENTS

prints what `recipe.audit` promises and writes through the descriptor what it does next, and at last its exit status.
"""

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from random import Random
from types import SimpleNamespace
from typing import Any

import psutil

from interaction import get_protocol
from interaction.environment import (
    GoldMessage,
    Task,
    audit_policies,
    is_own_code,
    known_failures,
    load_tasks,
    named,
    read_options,
)
from interaction.gold import check_task
from recipe.audit.findings import Audit, Score, Tell, table, told
from recipe.audit.legend import legend
from recipe.audit.policies import GOLD, gold, play
from recipe.reward import caller, question_of

OURS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "format": ("format", {}),
    "progress": ("progress", {}),
    "step": ("step", {}),
    "all_or_nothing": ("all_or_nothing", {}),
    "outcome official": ("outcome", {"rule": "official"}),
    "outcome clean": ("outcome", {"rule": "clean"}),
    "outcome priced": ("outcome", {"rule": "priced"}),
}
"""Name -> module of rewards, and its arguments."""
LOAD_SECONDS = 60.0
"""At least, for the tasks of an environment."""
REWARD_SECONDS = 60.0
"""For one call of a reward of the user's."""


def audit_of(given: SimpleNamespace, tell: Callable[[str | None, float], None]) -> int:
    """The audit that the command line asks for, printed; returns the exit status. `tell` hears what is done next."""

    def playing(where: str | None) -> None:
        tell(where, given.seconds)

    logging.getLogger("interaction").addHandler(logging.NullHandler())  # what fails is told below, in one line
    try:
        tell("load_tasks()", max(LOAD_SECONDS, given.seconds))
        environment = named(given.environment)
        protocol = get_protocol(given.protocol, docs="signature")
        tasks = _chosen(environment, given.tasks)
        _check(tasks, playing)
        playing(None)
        rewards = _rewards(given.reward, given.name, dict(given.arguments))
        if given.reward is None:
            playing(f"{GOLD}: {tasks[0].id}")
            rewards = _applying(rewards, play(tasks[0], protocol, gold).to_dict())
        audit, grown = run(tasks, protocol, rewards, known_failures(environment), playing)
    except ValueError as error:
        print(f"{error}", file=sys.stderr)
        return 2
    print(f"{table(audit)}\n")
    print(legend(rewards, dict.fromkeys(name for *_, name in audit.earned), audit_policies(environment)))
    print(f"\n{audit.episodes} episodes; {audit.without_gold} tasks without gold; {grown:+.1f} MB of memory after them")
    if said := told(audit):
        print(f"\n{said}")
    print("\nthe audit has failed" if audit.findings else "\npassed")
    return 1 if audit.findings else 0


def run(
    tasks: Sequence[Task], protocol: Any, rewards: Mapping[str, Score], listed: Mapping[str, str], tell: Tell
) -> tuple[Audit, float]:
    """The audit of these tasks, and by how many MB the process has grown after the first of them."""
    audit, process, before = Audit(tell), psutil.Process(), 0
    for number, task in enumerate(tasks):
        audit.add(task, protocol, rewards, listed)
        if number == min(9, len(tasks) - 1):
            before = process.memory_info().rss  # what is loaded once is loaded
    grown = (process.memory_info().rss - before) / 1e6
    calls = [(task.category, isinstance(item, GoldMessage) and item.calls) for task in tasks for item in task.gold()]
    with_calls = {task.category: False for task in tasks}
    for category, made in calls:
        with_calls[category] |= bool(made)
    audit.finish(with_calls, listed)
    return audit, grown


def _chosen(environment: str, number: str) -> list[Task]:
    tasks = list(load_tasks(environment).values())
    return tasks if number == "all" or int(number) >= len(tasks) else Random(0).sample(tasks, int(number))


def _check(tasks: Sequence[Task], tell: Tell) -> None:
    """Tasks of a user's own fulfil the contract, so that what is found of them later is no wrong type.

    Raises:
        ContractError: one does not.
    """
    for task in tasks:
        if is_own_code(task.environment):
            tell(f"the contract: {task.id}")
            check_task(task, read_options(task.environment, {}))


def _rewards(path: str | None, name: str, own: dict[str, Any]) -> dict[str, Score]:
    if path is not None:
        reward = caller(path, name, REWARD_SECONDS, own)
        return {path: lambda record: _number(reward(**question_of(record)))}

    def scored(module: str, arguments: dict[str, Any]) -> Score:
        function = import_module(f"rewards.{module}").compute_score
        return lambda record: _number(function(**question_of(record), **arguments))

    return {name: scored(*ours) for name, ours in OURS.items()}


def _applying(rewards: Mapping[str, Score], record: dict[str, Any]) -> dict[str, Score]:
    """Those of the rewards that the environment's records have the facts for; says which have not."""
    found = {}
    for name, score in rewards.items():
        try:
            score(record)
        except ValueError as error:
            print(f"NOTE the reward {name} is left out: {error}")
        else:
            found[name] = score
    return found


def _number(result: Any) -> float:
    return float(result["score"] if isinstance(result, dict) else result)


def _serve(descriptor: int, arguments: str) -> None:
    connection = Connection(descriptor, readable=False)

    def tell(where: str | None, seconds: float) -> None:
        said = {"at": where or "between plays", "seconds": None if where is None else seconds}
        connection.send_bytes(json.dumps(said).encode())

    status = audit_of(SimpleNamespace(**json.loads(arguments)), tell)
    sys.stdout.flush()  # after its last word this process may be killed
    connection.send_bytes(json.dumps({"status": status}).encode())


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
