"""What must not be, and the table of what each policy earns."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from interaction.environment import GoldMessage, Task
from interaction.protocol import Protocol
from interaction.record import EpisodeRecord, StopReason
from recipe.audit.policies import ANSWERS, CUT, GOLD, UNKNOWN, knows_gold, play, plays
from recipe.columns import aligned

CLOSE = 1e-9
SECONDS = 5.0
"""One episode takes milliseconds; a hostile text that makes it take so long has done something."""
SHOWN = 5
"""Findings of one kind that are listed."""

Score = Callable[[dict[str, Any]], float]
"""A record, as a plain dict -> what it earns."""

Tell = Callable[[str | None], None]
"""Hears "policy: task" before it is played, and None before anything that has a time limit of its own."""


@dataclass
class Audit:
    """What was earned, and what must not be."""

    tell: Tell
    earned: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """(reward, category, policy) -> a number a task; of gold that is cut, the most that a cut earns."""
    unlisted: dict[tuple[str, str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """The same of policies without gold, beside gold's, without the tasks that are listed for them."""
    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Kind -> what was found, a line each."""
    known: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Reason -> what was found and is listed for it."""
    idle: dict[str, list[int]] = field(default_factory=dict)
    """Task -> its turns that an answer without a call passes though gold makes some, where there are such turns."""
    episodes: int = 0
    without_gold: int = 0
    """Tasks without gold: played, and compared with nothing."""

    def add(self, task: Task, protocol: Protocol, rewards: Mapping[str, Score], listed: Mapping[str, str]) -> None:
        """Play one task with all policies."""
        self.tell(f"{GOLD}: {task.id}")
        has_gold = any(isinstance(item, GoldMessage) for item in task.gold())
        self.without_gold += not has_gold
        scores: dict[str, dict[str, float]] = {}
        asked: set[int] = set()
        for name, policy in list(plays(task)):
            self.tell(f"{name}: {task.id}")
            began = perf_counter()
            try:
                record = play(task, protocol, policy, knows_gold(name))
            except Exception as error:  # in open() or begin(): a conversation answers for the rest
                self._find("the environment failed", name, task.id, f"{type(error).__name__}: {error}", listed)
                return
            seconds = perf_counter() - began
            self.episodes += 1
            if record.stop_reason == StopReason.environment_error:
                self._find("the environment failed", name, task.id, record.fault or "", listed)
            if (said := _unknown(record)) is not None:
                self._find("a function that does not exist is not refused", name, task.id, said, listed)
            if seconds > SECONDS:
                self._find("an episode hung", name, task.id, f"{seconds:.1f} s", listed)
            if name == GOLD:
                asked = {number for number, turn in enumerate(record.turns) if any(step.calls for step in turn.steps)}
            elif name == ANSWERS and (idle := [number for number in sorted(asked) if _passed(record, number)]):
                self.idle[task.id] = idle
            self.tell(None)
            data = record.to_dict()
            earned, before = {reward: score(data) for reward, score in rewards.items()}, scores.get(name, {})
            scores[name] = {reward: max(value, before.get(reward, value)) for reward, value in earned.items()}
        if not has_gold:
            return
        for reward in rewards:
            best = scores[GOLD][reward]
            for name, earned in scores.items():
                value = earned[reward]
                self.earned[reward, task.category, name].append(value)
                where = f"{reward}, {name}", task.id
                kind, said = None, f"{value:g}, gold {best:g}"
                if value > best + CLOSE:
                    kind = "gold does not earn the most"
                elif name == CUT and value >= best - CLOSE:
                    kind = "what stops before the end earns as much"
                elif not knows_gold(name) and value >= best - CLOSE:
                    kind = "what knows no gold earns as much"
                listed_here = kind is not None and self._find(kind, *where, said, listed)
                if not knows_gold(name) and not listed_here:
                    self.unlisted[reward, task.category, name].append((value, best))

    def finish(self, with_calls: Mapping[str, bool], listed: Mapping[str, str]) -> None:
        """Compare means. `with_calls`: category -> whether gold makes calls in it."""
        if not self.earned:
            self.findings["there is no gold"].append("no task has any, so nothing can be said of a reward")
        for (reward, category, name), pairs in self.unlisted.items():
            mean, best = fmean(value for value, _ in pairs), fmean(gold for _, gold in pairs)
            if with_calls[category] and mean > best / 2 + CLOSE:
                kind = "what knows no gold earns more than half"
                self._find(kind, f"{reward}, {name}", category, f"{mean:.3f}, gold {best:.3f}", listed)

    def _find(self, kind: str, who: str, where: str, said: str, listed: Mapping[str, str]) -> bool:
        """Note a finding; among the known ones if it is listed for `who` ("reward, policy") and `where`, a task."""
        anyone = f"*, {who.partition(', ')[2]}: {where}"
        for name in (f"{who}: {where}", anyone, f"{who}: *"):
            if (reason := listed.get(name)) is not None:
                self.known[reason].append(f"{who}: {where}")
                return True
        self.findings[kind].append(f"{who}: {where}: {said}")
        return False


def _unknown(record: EpisodeRecord) -> str | None:
    """What is wrong with how a call of `UNKNOWN` was answered: it is an error, told in words; None if nothing is."""
    for call in (call for turn in record.turns for step in turn.steps for call in step.calls if call.name == UNKNOWN):
        if call.error is None or not call.result.strip():
            given = f"the error {call.error}" if call.error else "no error"
            return (
                f"{UNKNOWN}() is answered by {call.result[:80]!r} and {given}; expected "
                "ToolResult(words, ErrorKind.UNKNOWN_FUNCTION): a reward for calls that succeed pays it"
            )
    return None


def _passed(record: EpisodeRecord, number: int) -> bool:
    return number < len(record.turns) and bool(record.turns[number].passed)


def table(audit: Audit) -> str:
    """Means by reward, category and policy."""
    rewards = list(dict.fromkeys(reward for reward, _, _ in audit.earned))
    categories = list(dict.fromkeys(category for _, category, _ in audit.earned))
    names = list(dict.fromkeys(name for _, _, name in audit.earned))
    lines = [["reward", "category", "tasks", *names]]
    for reward in rewards:
        for category in categories:
            columns = [audit.earned.get((reward, category, name), []) for name in names]
            means = [f"{fmean(values):.3f}" if values else "-" for values in columns]
            lines.append([reward, category, str(len(columns[0])), *means])
    return aligned(lines)


def told(audit: Audit) -> str:
    """The findings as text; those that are listed with their reasons; turns that pass by themselves, for which only
    some rewards pay."""
    parts = [_idle(audit.idle)] if audit.idle else []
    for kind, lines in audit.findings.items():
        more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        parts.append(f"FOUND: {kind} ({len(lines)})" + "".join(f"\n  {line}" for line in lines[:SHOWN]) + more)
    if audit.known:
        lines = []
        for reason, found in audit.known.items():
            rest = f", and {len(found) - 1} more" if len(found) > 1 else ""
            lines.append(f"\n  {reason}: {found[0]}{rest}")
        parts.append("known:" + "".join(lines))
    return "\n".join(parts)


def _idle(found: Mapping[str, Sequence[int]]) -> str:
    task, (turn, *_) = next(iter(found.items()))
    return (
        f"NOTE turn {turn} of {task} (the first is 0) passes without a call, though gold calls something there: a "
        f"reward by turn pays for idling ({sum(map(len, found.values()))} turns of {len(found)} tasks)"
    )
