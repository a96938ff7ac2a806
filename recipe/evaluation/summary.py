"""Results of an evaluation as data (`results.json`) and as text tables.

Progress, accuracies and rates are those of `rewards.metrics`, computed from the records; nothing is measured twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from textwrap import fill
from typing import Any, Protocol

from interaction.environment import Task, averages_of, load_tasks
from interaction.record import EpisodeRecord
from recipe.columns import aligned
from recipe.evaluation.cost import Cost
from recipe.evaluation.intervals import Interval, mean_interval, pass_all_k, pass_at_k, proportion_interval
from recipe.evaluation.lost import remedy, told
from recipe.evaluation.play import Lost
from rewards.metrics import STOP_REASONS, episode_metrics, passed_official

RATES = ("format_rate", "call_success_rate", "turns", "steps", "calls")
ACCURACIES = ("acc", "acc_official")
PASS = {"pass_at_k": pass_at_k, "pass_all_k": pass_all_k}
"""Where there are several samples of a task: that one of k passes, and that all do."""


class OfficialVerdict(Protocol):
    """What the environment's source says about one conversation."""

    @property
    def valid(self) -> bool | None: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def differences(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """One episode with both verdicts, where the environment's source has a checker of its own."""

    record: EpisodeRecord
    official: OfficialVerdict | None

    @property
    def task(self) -> Task:
        return load_tasks(self.record.environment)[self.record.task_id]

    @property
    def agrees(self) -> bool:
        """With our environment's reckoning of the official verdict."""
        return self.official is None or self.official.valid == passed_official(self.record.to_dict())


def results(
    episodes: Sequence[Judged],
    lost: Sequence[Lost],
    samples: int | None,
    cost: Cost | None = None,
    by_bfcl: bool = True,
) -> dict[str, Any]:
    """Everything that is known of these episodes, by category and for all together, as plain data.

    `samples` of each task were wanted; None for episodes that were not chosen as an evaluation, such as those of a
    training run, which have neither pass@k nor BFCL's score. Nor have those that a search found, or that were played by
    other rules than BFCL's (`by_bfcl`), its score.
    """
    searched = cost is not None and cost.searched
    environments = dict.fromkeys(item.record.environment for item in episodes)
    known = dict.fromkeys((name, task.category) for name in environments for task in load_tasks(name).values())
    groups = {kind: [item for item in episodes if _kind(item) == kind] for kind in known}
    present = [kind for kind in known if groups[kind]]
    names = Counter(category for _, category in present)
    categories = {
        category if names[category] < 2 else f"{name}/{category}": _group(groups[name, category], samples)
        for name, category in present
    }
    found: dict[str, Any] = {
        "categories": categories,
        "overall": _group(episodes, samples) if episodes else None,
        "parts": _parts(episodes, samples),
        "multi_turn_official": None,
        "leaderboard": None
        if searched
        else _leaderboard(environments, {kind: groups[kind] for kind in present}, samples),
        "cost": None if cost is None else asdict(cost) | {"text": str(cost)},
        "lost": [{"task_id": item.task_id, "sample": item.sample, "reason": item.reason} for item in lost],
        "verdicts": agreement(episodes),
    }
    if samples and by_bfcl and not searched and [*environments] == ["bfcl"] and len(present) == len(known):
        # BFCL's own "Multi Turn" column: the four categories count the same, whatever number of tasks each has here.
        found["multi_turn_official"] = fmean(group["acc_official"]["mean"] for group in categories.values())
    return found


def _leaderboard(
    environments: Iterable[str], groups: Mapping[tuple[str, str], Sequence[Judged]], samples: int | None
) -> dict[str, Any] | None:
    """Averages as the leaderboard of an environment's source has them; None where no environment has one.

    Of episodes that were not chosen as an evaluation, only from categories all of whose tasks are there.
    """
    makers = [maker for name in environments if (maker := averages_of(name)) is not None]
    if not makers:
        return None
    played, accuracies = 0, {}
    for (environment, category), items in groups.items():
        tasks = {item.record.task_id for item in items}
        known = sum(task.category == category for task in load_tasks(environment).values())
        if samples or len(tasks) == known:
            accuracies[category] = fmean(passed_official(item.record.to_dict()) for item in items), len(tasks)
            played += len(tasks)
    averages, missing = makers[0](accuracies)
    return {"averages": dict(averages), "missing": list(missing), "tasks": played} if averages else None


def _kind(item: Judged) -> tuple[str, str]:
    return item.record.environment, item.record.category


def _key(item: Judged) -> tuple[str, str]:
    """Two environments may have tasks with one id."""
    return item.record.environment, item.record.task_id


def _parts(episodes: Sequence[Judged], samples: int | None) -> dict[str, Any]:
    """The episodes of the tasks for choosing and of those for reporting, where there are both."""
    groups = {part: [item for item in episodes if item.task.part == part] for part in ("choose", "report")}
    return {part: _group(items, samples) for part, items in groups.items()} if all(groups.values()) else {}


def _group(items: Sequence[Judged], samples: int | None) -> dict[str, Any]:
    metrics = [episode_metrics(item.record.to_dict()) for item in items]
    clusters = [(item.record.environment, item.task.cluster) for item in items]

    def column(name: str) -> list[float]:
        return [episode[name] for episode in metrics]

    asked = [
        (float(bool(item.official.valid)), cluster)
        for item, cluster in zip(items, clusters, strict=True)
        if item.official
    ]
    by_source = [valid for valid, _ in asked]
    found: dict[str, Any] = {
        "episodes": len(items),
        "tasks": len({_key(item) for item in items}),
        "progress": _estimate(column("progress"), mean_interval(column("progress"), clusters)),
        **{name: _estimate(column(name), proportion_interval(column(name), clusters)) for name in ACCURACIES},
        **(
            {"acc_bfcl": _estimate(by_source, proportion_interval(by_source, [one for _, one in asked]))}
            if by_source
            else {}
        ),
        **{name: fmean(column(name)) for name in RATES},
        "stop": {reason: fmean(column(f"stop/{reason}")) for reason in STOP_REASONS},
    }
    if samples and samples > 1:
        for key, estimate in PASS.items():
            found[key] = {name: _pass(items, column(name), samples, estimate) for name in ACCURACIES}
    return found


def _estimate(values: Sequence[float], interval: Interval) -> dict[str, float]:
    return {"mean": fmean(values), "low": interval[0], "high": interval[1]}


def _pass(
    items: Sequence[Judged], values: Sequence[float], samples: int, estimate: Callable[[int, int, int], float]
) -> dict[str, float]:
    """Mean of an estimate over the tasks that have k samples, for k = 1, 2, 4, ... and the number of samples."""
    tasks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item, value in zip(items, values, strict=True):
        tasks[_key(item)].append(value)
    ks = sorted({2**power for power in range(samples.bit_length()) if 2**power <= samples} | {samples})
    found = {}
    for k in ks:
        estimates = [estimate(len(passed), int(sum(passed)), k) for passed in tasks.values() if len(passed) >= k]
        if estimates:
            found[str(k)] = fmean(estimates)
    return found


def agreement(episodes: Sequence[Judged]) -> dict[str, Any] | None:
    """BFCL's own verdicts beside `acc_official`: episodes without a listed difference must all agree.

    None where nothing but the environment judged.
    """
    asked = [(item, item.official) for item in episodes if item.official is not None]
    if not asked:
        return None
    plain = [item for item, official in asked if not official.differences]
    named: dict[str, list[Judged]] = defaultdict(list)
    for item, official in asked:
        for name in official.differences:
            named[name].append(item)
    return {
        "episodes": len(asked),
        "asked": sum(official.reason != "multi_turn:force_terminated" for _, official in asked),
        "agree": sum(item.agrees for item, _ in asked),
        "without_listed_difference": len(plain),
        "disagree_without_listed_difference": sorted(item.record.task_id for item in plain if not item.agrees),
        "differences": {
            name: {"episodes": len(items), "disagree": sum(not item.agrees for item in items)}
            for name, items in sorted(named.items())
        },
        "reasons": dict(Counter(official.reason or "valid" for _, official in asked).most_common()),
    }


def text(found: Mapping[str, Any]) -> str:
    """The results as tables for people."""
    parts = []
    if found["overall"] is not None:
        rows = {name.removeprefix("multi_turn_"): group for name, group in found["categories"].items()}
        rows["all"] = found["overall"]
        rows |= found["parts"]
        parts += [_accuracy_table(rows), _stop_table(rows)]
        if found.get("cost"):
            parts.append(fill(found["cost"]["text"], 120))
        if "pass_at_k" in found["overall"]:
            parts += [_pass_table(rows, "pass_at_k", "pass@"), _pass_table(rows, "pass_all_k", "pass^")]
        if found["multi_turn_official"] is not None:
            parts.append(
                f"BFCL's multi-turn score, the mean of the four categories: {found['multi_turn_official']:.3f}"
            )
        if found.get("leaderboard"):
            parts.append(_leaderboard_text(found["leaderboard"]))
        if found["verdicts"]:
            parts.append(_agreement_text(found["verdicts"]))
    if found.get("note"):
        parts.append(found["note"])
    if found["lost"]:
        reasons = [item["reason"] for item in found["lost"]]
        number = f"all {len(reasons)} episodes, so there is no number"
        if found["overall"] is not None:
            number = f"{len(reasons)} episodes could not be played and are in no number above"
        parts.append(f"LOST: {number}:{told(reasons)}\n  {remedy(reasons)}.")
    return "\n\n".join(parts)


def _accuracy_table(rows: Mapping[str, Any]) -> str:
    by_source = ["acc_bfcl"] if all("acc_bfcl" in group for group in rows.values()) else []
    names = ("progress", *ACCURACIES, *by_source)
    head = ["category", "tasks", "episodes", *names, "format", "calls ok", "calls"]
    lines = [
        [
            category,
            str(group["tasks"]),
            str(group["episodes"]),
            *(f"{group[name]['mean']:.3f} [{group[name]['low']:.3f}, {group[name]['high']:.3f}]" for name in names),
            f"{group['format_rate']:.3f}",
            f"{group['call_success_rate']:.3f}",
            f"{group['calls']:.1f}",
        ]
        for category, group in rows.items()
    ]
    return aligned([head, *lines])


def _stop_table(rows: Mapping[str, Any]) -> str:
    used = [reason for reason in STOP_REASONS if any(group["stop"][reason] for group in rows.values())]
    lines = [[name, *(f"{group['stop'][reason]:.1%}" for reason in used)] for name, group in rows.items()]
    return aligned([["how episodes ended", *used], *lines])


def _pass_table(rows: Mapping[str, Any], key: str, sign: str) -> str:
    ks = list(rows["all"][key]["acc"])
    head = ["category", *(f"{name} {sign}{k}" for name in ACCURACIES for k in ks)]
    lines = [
        [category, *(f"{group[key][name].get(k, float('nan')):.3f}" for name in ACCURACIES for k in ks)]
        for category, group in rows.items()
    ]
    return aligned([head, *lines])


def _leaderboard_text(found: Mapping[str, Any]) -> str:
    averages = "   ".join(f"{name} {value:.3f}" for name, value in found["averages"].items())
    return f"averages as the leaderboard has them, over {found['tasks']} tasks:\n  {averages}" + (
        f"\n  not played: {', '.join(found['missing'])}" if found["missing"] else ""
    )


def _agreement_text(verdicts: Mapping[str, Any]) -> str:
    wrong = verdicts["disagree_without_listed_difference"]
    early = verdicts["episodes"] - verdicts["asked"]
    lines = [
        f"BFCL's own checker agrees with acc_official on {verdicts['agree']} of {verdicts['episodes']} episodes"
        + (f"; {early} of them stopped before their last turn and fail without being asked." if early else ".")
    ]
    lines += [
        f"  listed difference {name}: {counts['episodes']} episodes, {counts['disagree']} of them with another verdict"
        for name, counts in verdicts["differences"].items()
    ]
    if wrong:
        lines.append(f"  DISAGREE WITHOUT A LISTED DIFFERENCE: {len(wrong)}, such as {', '.join(wrong[:5])}")
    return "\n".join(lines)
