"""Play tasks of an environment with policies that need no model, and print what each reward pays them.

    python -m recipe.audit --environment NAME|FILE [--reward FILE] [--tasks N|all]

Gold, parts of it, one safe call a turn, only answers, nothing, junk and hostile texts. The exit status is 1 if gold is
not the maximum, if gold that is cut or what knows nothing of it earns as much on a task, if the latter earns more than
half of gold's mean in a category whose gold makes calls, or if a text makes the environment fail or hang. What an
environment lists with a reason (`AUDIT_KNOWN` of its package, "reward, policy: task" -> reason) is printed and not
counted.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from random import Random
from typing import Any

import psutil

from interaction import get_protocol
from interaction.environment import DEFAULT, GoldMessage, Task, known_failures, load_tasks, named
from recipe.audit.findings import Audit, Score, table, told
from recipe.audit.policies import gold, play
from recipe.user_code.reward_file import RewardFileError
from recipe.user_code.reward_process import RewardProcess
from recipe.user_code.reward_result import RewardError

OURS = ("format", "progress", "step", "all_or_nothing")
SAMPLE = 40
SECONDS = 60.0
"""For one call of a reward of the user's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environment", default=DEFAULT, metavar="NAME|FILE", help="default: %(default)s")
    parser.add_argument("--reward", metavar="FILE", help="a reward of your own, instead of those here")
    parser.add_argument("--name", default="compute_score", help="its function (default: %(default)s)")
    parser.add_argument("--tasks", default=str(SAMPLE), help="how many, drawn at random, or all (default: %(default)s)")
    parser.add_argument("--protocol", default="think_xml", help="wire format (default: %(default)s)")
    given = parser.parse_args(arguments)
    if given.tasks != "all" and not (given.tasks.isdecimal() and int(given.tasks)):
        parser.error(f"--tasks {given.tasks}: give a number, 1 or more, or all")
    try:
        environment = named(given.environment)
        protocol = get_protocol(given.protocol, docs="signature")
        with ExitStack() as held:
            tasks = _chosen(environment, given.tasks)
            rewards = _rewards(given.reward, given.name, held)
            if given.reward is None:
                rewards = _applying(rewards, play(tasks[0], protocol, gold).to_dict())
            audit, grown = run(tasks, protocol, rewards, known_failures(environment))
    except (ValueError, RewardFileError, RewardError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    print(table(audit))
    print(f"\n{audit.episodes} episodes; {audit.without_gold} tasks without gold; {grown:+.1f} MB of memory after them")
    if said := told(audit):
        print(f"\n{said}")
    print("\nthe audit has failed" if audit.findings else "\npassed")
    return 1 if audit.findings else 0


def run(
    tasks: Sequence[Task], protocol: Any, rewards: Mapping[str, Score], listed: Mapping[str, str]
) -> tuple[Audit, float]:
    """The audit of these tasks, and by how many MB the process has grown after the first of them."""
    audit, process, before = Audit(), psutil.Process(), 0
    for number, task in enumerate(tasks):
        audit.add(task, protocol, rewards, listed)
        if number == min(9, len(tasks) - 1):
            before = process.memory_info().rss  # what is loaded once is loaded
    grown = (process.memory_info().rss - before) / 1e6
    calls = [(task.category, isinstance(item, GoldMessage) and item.calls) for task in tasks for item in task.gold()]
    audit.finish({task.category: any(made for category, made in calls if category == task.category) for task in tasks})
    return audit, grown


def _chosen(environment: str, number: str) -> list[Task]:
    tasks = list(load_tasks(environment).values())
    return tasks if number == "all" or int(number) >= len(tasks) else Random(0).sample(tasks, int(number))


def _rewards(path: str | None, name: str, held: ExitStack) -> dict[str, Score]:
    if path is not None:
        reward = held.enter_context(RewardProcess(path, name, SECONDS, {}))
        return {path: lambda record: _number(reward(**_question(record)))}

    def scored(name: str) -> Score:
        function = import_module(f"rewards.{name}").compute_score
        return lambda record: _number(function(**_question(record)))

    return {name: scored(name) for name in OURS}


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


def _question(record: dict[str, Any]) -> dict[str, Any]:
    """As verl calls a reward."""
    extra = {"split": "train", "environment": record["environment"], "task_id": record["task_id"], "episode": record}
    source = f"{record['environment']}/{record['category']}"
    return {"data_source": source, "solution_str": "", "ground_truth": "[]", "extra_info": extra}


def _number(result: Any) -> float:
    return float(result["score"] if isinstance(result, dict) else result)


if __name__ == "__main__":
    sys.exit(main())
