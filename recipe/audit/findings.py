"""What must not be, and the table of what each policy earns."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from interaction.environment import GoldMessage, Task
from interaction.protocol import Protocol
from interaction.record import StopReason
from recipe.audit.policies import CUT, GOLD, NAMES, WITHOUT_GOLD, play, plays

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
    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Kind -> what was found, a line each."""
    known: dict[str, str] = field(default_factory=dict)
    """What was found and is listed, with the reason."""
    episodes: int = 0
    without_gold: int = 0
    """Tasks without gold: played, and compared with nothing."""

    def add(self, task: Task, protocol: Protocol, rewards: Mapping[str, Score], listed: Mapping[str, str]) -> None:
        """Play one task with all policies."""
        self.tell(f"{GOLD}: {task.id}")
        has_gold = any(isinstance(item, GoldMessage) for item in task.gold())
        self.without_gold += not has_gold
        scores: dict[str, dict[str, float]] = {}
        for name, policy in list(plays(task)):
            self.tell(f"{name}: {task.id}")
            began = perf_counter()
            try:
                record = play(task, protocol, policy)
            except Exception as error:  # in open() or begin(): a conversation answers for the rest
                self._find("the environment failed", f"{name}: {task.id}", f"{type(error).__name__}: {error}", listed)
                return
            seconds = perf_counter() - began
            self.episodes += 1
            if record.stop_reason == StopReason.environment_error:
                self._find("the environment failed", f"{name}: {task.id}", record.fault or "", listed)
            if seconds > SECONDS:
                self._find("an episode hung", f"{name}: {task.id}", f"{seconds:.1f} s", listed)
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
                where = f"{reward}, {name}: {task.id}"
                if value > best + CLOSE:
                    self._find("gold does not earn the most", where, f"{value:g}, gold {best:g}", listed)
                elif name == CUT and value >= best - CLOSE:
                    self._find("what stops before the end earns as much", where, f"{value:g}, as gold", listed)
                elif name in WITHOUT_GOLD and value >= best - CLOSE:
                    self._find("what knows no gold earns as much", where, f"{value:g}, as gold", listed)

    def finish(self, with_calls: Mapping[str, bool]) -> None:
        """Compare means. `with_calls`: category -> whether gold makes calls in it."""
        if not self.earned:
            self.findings["there is no gold"].append("no task has any, so nothing can be said of a reward")
        for (reward, category, name), values in self.earned.items():
            best = fmean(self.earned[reward, category, GOLD])
            if name in WITHOUT_GOLD and with_calls[category] and fmean(values) > best / 2 + CLOSE:
                self.findings["what knows no gold earns more than half"].append(
                    f"{reward}, {name}: {category}: {fmean(values):.3f}, gold {best:.3f}"
                )

    def _find(self, kind: str, where: str, said: str, listed: Mapping[str, str]) -> None:
        if (reason := listed.get(where)) is not None:
            self.known[where] = reason
        else:
            self.findings[kind].append(f"{where}: {said}")


def table(audit: Audit) -> str:
    """Means by reward, category and policy."""
    rewards = list(dict.fromkeys(reward for reward, _, _ in audit.earned))
    categories = list(dict.fromkeys(category for _, category, _ in audit.earned))
    lines = [["reward", "category", "tasks", *NAMES]]
    for reward in rewards:
        for category in categories:
            columns = [audit.earned[reward, category, name] for name in NAMES]
            lines.append(
                [reward, category, str(len(columns[0])), *(f"{fmean(values):.3f}" for values in columns if values)]
            )
    return _aligned(lines)


def told(audit: Audit) -> str:
    """The findings as text; those that are listed with their reasons."""
    parts = []
    for kind, lines in audit.findings.items():
        more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        parts.append(f"FOUND: {kind} ({len(lines)})" + "".join(f"\n  {line}" for line in lines[:SHOWN]) + more)
    if audit.known:
        parts.append("known:" + "".join(f"\n  {where}: {reason}" for where, reason in audit.known.items()))
    return "\n".join(parts)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
