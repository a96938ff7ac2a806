"""Play tasks with policies that need no model, and print what each reward pays them.

    python -m recipe.tools.audit --environment NAME|FILE [--reward FILE [price=0.02 ...]] [--tasks N|all] [--given N]
    python -m recipe.tools.audit --environment NAME|FILE --show TASK POLICY

The policies are gold, parts of gold, one safe call a turn, only answers, nothing, blanks, calls in other formats, junk
and hostile texts; and gold with nothing, blanks, such calls or junk where it refuses. Exit status 1 if

- gold does not earn the most
- a cut gold, a policy without gold, or what stands in place of a refusal earns as much
- a policy without gold earns more than half of gold's mean in a category whose gold makes calls
- a call of a function that does not exist is no error
- the environment fails, or takes more than S seconds for a call

Findings stand in the order of what they would teach a model, each with the first play that earned it. `--show` prints
any play and what each reward pays it. `AUDIT_KNOWN` of an environment lists findings that do not count:
"reward, policy: task" -> reason.
"""

import argparse
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from operator import itemgetter
from random import Random
from statistics import fmean
from typing import Any

from interaction import get_protocol
from interaction.boundary import ToolUnavailable
from interaction.call import Call
from interaction.environment import (
    DEFAULT,
    GoldMessage,
    Task,
    is_own_code,
    known_failures,
    load_tasks,
    named,
    read_options,
    waits,
)
from interaction.gold import beside_each_other, check_attempts, check_task, unwritable
from interaction.record import EpisodeRecord, StopReason, question_of
from interaction.words import spoken
from recipe.files import aligned
from recipe.reward import caller, read_argument
from recipe.tools.policies import AUDIT_KNOWN, CUT, GOLD, POLICIES, REFUSALS, UNKNOWN, WITH_GOLD, play, plays

REWARDS: Mapping[str, dict[str, Any]] = {
    **{name: {} for name in ("format", "progress", "dense", "step", "all_or_nothing")},
    **{f"outcome {rule}": {"rule": rule} for rule in ("official", "clean", "priced")},
}
"""Rewards of this package, and their arguments."""
WHY: Mapping[str, str] = {
    "what knows no gold earns as much": "A model that finds this way need not do the task.",
    "what is no refusal earns as much": "A model learns to say nothing, or to call in a format that nobody reads.",
    "what knows no gold earns more than half": "Most of the reward is paid without doing the task.",
    "what stops before the end earns as much": "A model learns to stop there.",
    "gold does not earn the most": "A model is drawn away from what the task calls right.",
    "a function that does not exist is not refused": "A model learns to invent functions.",
    "the environment failed": "A model's text ends the episode, which is then not scored.",
}
"""What is found, in the order of what it would teach a model -> why it should not be."""
PART = {CUT: "what stops before the end earns as much", **dict.fromkeys(REFUSALS, "what is no refusal earns as much")}
CLOSE = 1e-9
SHOWN = 5
"""Findings of one kind that are listed."""

Score = Callable[[EpisodeRecord], float]


def main(arguments: Sequence[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m recipe.tools.audit", description=__doc__, formatter_class=form)
    parser.add_argument("--environment", default=DEFAULT, metavar="NAME|FILE", help="default: %(default)s")
    parser.add_argument("--reward", metavar="FILE", help="your reward, in place of those of this package")
    parser.add_argument("--name", default="compute_score", help="its function (default: %(default)s)")
    parser.add_argument("arguments", nargs="*", type=read_argument, metavar="NAME=VALUE", help="arguments of --reward")
    parser.add_argument("--tasks", default="40", help="a number, drawn at random, or all (default: %(default)s)")
    parser.add_argument("--protocol", default="think_xml", help="wire format (default: %(default)s)")
    parser.add_argument("--show", nargs=2, metavar=("TASK", "POLICY"), help="print one play and what it earns")
    parser.add_argument("--given", type=int, default=0, metavar="N", help="behind N turns of gold, see from_gold")
    parser.add_argument("--seconds", type=float, default=30.0, help="limit of one call (default: %(default)g)")
    given = parser.parse_intermixed_args(arguments)
    if given.arguments and given.reward is None:
        parser.error("arguments are for a reward of your own; name its file with --reward FILE")
    if given.tasks != "all" and not (given.tasks.isdecimal() and int(given.tasks)) or not given.seconds > 0:
        parser.error("--tasks: give a number from 1, or all; --seconds: give a number above 0")
    logging.getLogger("interaction").addHandler(logging.NullHandler())  # what fails is told in one line
    try:
        return _audit(given)
    except (ValueError, ToolUnavailable) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _audit(given: argparse.Namespace) -> int:
    environment, protocol = named(given.environment), get_protocol(given.protocol, docs="signature")
    known = load_tasks(environment)
    tasks = list(known.values())
    if given.tasks != "all" and int(given.tasks) < len(tasks):
        tasks = Random(0).sample(tasks, int(given.tasks))
    if given.show and given.show[0] not in known:
        raise ValueError(f"environment {environment} has no task {given.show[0]!r}, but {', '.join([*known][:3])}...")
    if given.show:
        tasks = [known[given.show[0]]]
    if any(map(waits, tasks)):
        times = len([*plays(tasks[0], protocol, given.given)])
        print(f"NOTE {environment} waits: each of {len(tasks)} tasks is played {times} times, and its tools are called")
    for task in tasks[:4] if is_own_code(environment) else ():
        check_attempts(task, read_options(environment, {}))
    for task in tasks if is_own_code(environment) else ():
        check_task(task, read_options(environment, {}))
    record = play(tasks[0], protocol, POLICIES[GOLD])
    if given.given and any(turn.passed is None for turn in record.turns):
        raise ValueError(f"--given: {environment} judges a task as a whole, so gold never begins it")
    rewards = _rewards(given, record)
    if given.show:
        return _show(tasks[0], given.show[1], protocol, rewards, given)
    audit = Audit(rewards, {**AUDIT_KNOWN, **known_failures(environment)}, given.seconds, given.given)
    for task in tasks:
        audit.add(task, protocol)
    if not audit.episodes:
        raise ValueError("no task could be played, so nothing can be said of a reward")
    audit.compare_means()
    if audit.earned:
        print(f"{audit.table()}\n\ndocs/your_tools.md explains rows and columns")
    print(f"{audit.episodes} episodes; {audit.without_gold} tasks without gold")
    if audit.without_gold:
        print("NOTE of tasks without gold it is only known that what plays without gold does not pass")
    print(f"\n{audit.told()}\n{'the audit has failed' if audit.findings else 'passed'}")
    return 1 if audit.findings else 0


def _rewards(given: argparse.Namespace, record: EpisodeRecord) -> dict[str, Score]:
    """Those to compare: the user's, or those of this package that can score such a record."""
    if given.reward:
        own = caller(given.reward, given.name, given.seconds, dict(given.arguments))
        return {given.reward: partial(_score, own, {})}
    rewards: dict[str, Score] = {}
    for name, more in REWARDS.items():
        score = partial(_score, import_module(f"rewards.{name.split()[0]}").compute_score, more)
        try:
            score(record)
            rewards[name] = score
        except ValueError as error:  # the environment's records lack the facts for it
            print(f"NOTE the reward {name} is left out: {error}")
    return rewards


def _show(task: Task, policy: str, protocol: Any, rewards: Mapping[str, Score], given: argparse.Namespace) -> int:
    """Print the plays of a policy. Raises ValueError where the task has no such policy."""
    ways = list(plays(task, protocol, given.given))
    if policy not in (names := dict.fromkeys(name for name, *_ in ways)):
        raise ValueError(f"no policy {policy!r}; there are {', '.join(names)}")
    for other, one in ((form, one) for name, form, one in ways if name == policy):
        record = play(task, other, one, policy in WITH_GOLD, given.seconds, given.given)
        print("\n".join(transcript(record)))
        print(spoken("earns", ", ".join(f"{name} {score(record):g}" for name, score in rewards.items())))
    return 0


def transcript(record: EpisodeRecord) -> list[str]:
    """An episode message by message."""
    lines = []
    for turn in (*record.given, *record.turns):
        lines += [spoken("user", turn.user)] if turn.reached else []
        for step in turn.steps:
            for call in step.calls:
                lines.append(spoken("call", str(Call(call.name, call.arguments))))
                lines.append(spoken("error" if call.error else "result", call.result))
            if not step.calls:
                lines.append(spoken("malformed", step.text) if step.answer is None else spoken("answer", step.answer))
        lines.append(spoken("verdict", "the turn passed" if turn.passed else "the turn did not pass"))
    return [*lines, spoken("end", f"{record.stop_reason}{f': {record.fault}' if record.fault else ''}")]


def _score(reward: Callable[..., Any], arguments: Mapping[str, Any], record: EpisodeRecord) -> float:
    """What a reward pays, called as verl calls it."""
    result = reward(**question_of(record.to_dict()), **arguments)
    return float(result["score"] if isinstance(result, dict) else result)


class Audit:
    """What was earned, and what must not be."""

    def __init__(self, rewards: Mapping[str, Score], listed: Mapping[str, str], seconds: float, given: int) -> None:
        self.rewards, self.listed, self.seconds, self.given = rewards, listed, seconds, given
        self.earned: dict[tuple[str, str, str], list[tuple[float, float, bool]]] = defaultdict(list)
        """(reward, category, policy) -> of each task the policy's score, gold's, and whether it counts for the mean."""
        self.with_calls: dict[str, bool] = defaultdict(bool)
        """Category -> whether gold makes calls in it."""
        self.findings: dict[str, list[str]] = defaultdict(list)
        self.first: dict[str, EpisodeRecord] = {}
        """What is found -> the first play that earned it."""
        self.half: dict[tuple[str, str, str], EpisodeRecord] = {}
        """(reward, category, policy) -> the first play that earned more than half of gold's score."""
        self.known: dict[str, list[str]] = defaultdict(list)
        """Reason -> what was found and is listed for it."""
        self.episodes = self.without_gold = 0

    def add(self, task: Task, protocol: Any) -> None:
        """Play one task with all policies. Gold that the protocol cannot write is none."""
        messages = [item for item in task.gold() if isinstance(item, GoldMessage)]
        writable = unwritable(task, protocol) is None
        self.without_gold += not (messages and writable)
        self.with_calls[task.category] |= any(message.calls for message in messages)
        scores: dict[tuple[str, str], list[tuple[float, EpisodeRecord]]] = defaultdict(list)
        every = plays(task, protocol, self.given) if writable else ()
        ways = [way for way in every if messages or way[0] not in WITH_GOLD]
        try:
            records = beside_each_other(partial(self._play, task), ways, lambda _: waits(task))
        except ToolUnavailable:
            raise
        except Exception as error:  # in open() or begin(): a conversation answers for the rest
            self._find("the environment failed", "", task.id, f"{type(error).__name__}: {error}")
            return
        for (name, _, _), record in zip(ways, records, strict=True):
            self.episodes += 1
            if record.stop_reason == StopReason.environment_error:
                self._find("the environment failed", name, task.id, record.fault or "", record)
            for call in (call for turn in record.turns for step in turn.steps for call in step.calls):
                if call.name == UNKNOWN and (call.error is None or not call.result.strip()):
                    said = f"{UNKNOWN}() gives {call.result[:80]!r}, error {call.error}; expected words and an error"
                    self._find("a function that does not exist is not refused", name, task.id, said, record)
            for reward, score in self.rewards.items():
                scores[reward, name].append((score(record), record))
            if not messages and record.outcome is not None and record.outcome.passed:
                self._find("what knows no gold earns as much", f"the check, {name}", task.id, "passes", record)
        for (reward, name), values in scores.items():
            value, record = max(values, key=itemgetter(0))
            if not messages:
                self.earned[reward, f"{task.category}, no gold", name].append((value, 0.0, False))
                continue
            best, kind = max(score for score, _ in scores[reward, GOLD]), ""
            if value > best + CLOSE:
                kind = "gold does not earn the most"
            elif value >= best - CLOSE and name in PART:
                kind = PART[name]
            elif value >= best - CLOSE and name not in WITH_GOLD:
                kind = "what knows no gold earns as much"
            listed = kind and self._find(kind, f"{reward}, {name}", task.id, f"{value:g}, gold {best:g}", record)
            self.earned[reward, task.category, name].append((value, best, not listed))
            if not listed and value > best / 2:
                self.half.setdefault((reward, task.category, name), record)

    def _play(self, task: Task, way: tuple[str, Any, Any]) -> EpisodeRecord:
        name, form, policy = way
        return play(task, form, policy, name in WITH_GOLD, self.seconds, self.given)

    def compare_means(self) -> None:
        """Policies without gold against half of gold's mean."""
        for (reward, category, name), found in self.earned.items():
            pairs = [(value, best) for value, best, counts in found if counts]
            if pairs and self.with_calls[category] and name not in WITH_GOLD:
                mean, best = map(fmean, zip(*pairs, strict=True))
                if mean > best / 2 + CLOSE:
                    said, play = f"{mean:.3f}, gold {best:.3f}", self.half[reward, category, name]
                    self._find("what knows no gold earns more than half", f"{reward}, {name}", category, said, play)

    def _find(self, kind: str, who: str, where: str, said: str, play: EpisodeRecord | None = None) -> bool:
        """Note a finding; returns whether it is listed for `who` ("reward, policy") and `where`, a task."""
        names = who, (policy := f"*, {who.partition(', ')[2]}"), f"{policy}, {play.protocol if play else ''}"
        for name in (f"{name}: {task}" for name in names for task in (where, "*")):
            if (reason := self.listed.get(name)) is not None:
                self.known[reason].append(f"{who}: {where}")
                return True
        self.findings[kind].append(f"{who}: {where}: {said}")
        if play is not None:
            self.first.setdefault(kind, play)
        return False

    def table(self) -> str:
        """Means by reward, category and policy."""
        _, categories, names = (dict.fromkeys(key[part] for key in self.earned) for part in range(3))
        lines = [["reward", "category", "tasks", *names]]
        for reward, category in product(self.rewards, categories):
            columns = [[value for value, *_ in self.earned.get((reward, category, name), ())] for name in names]
            means = [f"{fmean(values):.3f}" if values else "-" for values in columns]
            lines.append([reward, category, str(max(map(len, columns))), *means])
        return aligned(lines)

    def told(self) -> str:
        """The findings, and those that are listed with a reason."""
        lines = []
        for kind, why in WHY.items():
            if found := self.findings.get(kind):
                lines += [f"FOUND: {kind} ({len(found)}). {why}", *(f"  {line}" for line in found[:SHOWN])]
            if kind in self.first:
                lines += [f"  the first play, on task {self.first[kind].task_id}:", *transcript(self.first[kind])]
        for reason, found in self.known.items():
            lines.append(f"known: {reason}: {found[0]}" + (f", and {len(found) - 1} more" if len(found) > 1 else ""))
        return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
