"""Results of an evaluation as data (`results.json`) and as text tables.

Progress, accuracies and rates are those of `rewards.metrics`, computed from the records; nothing is measured twice.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from interaction.environment import Task, averages_of, load_tasks
from interaction.record import EpisodeRecord
from recipe.evaluation.intervals import SHARE, interval, pass_all_k, pass_at_k
from recipe.evaluation.store import EPISODES, finished_lines
from recipe.files import PreflightError, aligned
from rewards.metrics import STOP_REASONS, episode_metrics, passed_official

RATES = ("format_rate", "call_success_rate", "turns", "steps", "calls")
ACCURACIES = ("acc_official", "acc")
PASS = {"pass_at_k": ("pass@", pass_at_k), "pass_all_k": ("pass^", pass_all_k)}
"""With several samples of a task: that one of k passes, and that all do."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One episode with both verdicts, where the environment's source has a checker of its own."""

    record: EpisodeRecord
    official: Any
    """What the source says: `valid`, `reason` and the listed `differences` that apply; None where it is not asked."""
    part: str | None = None
    """On which side of the split it was played with the task stands; None where that is not stored."""

    @property
    def task(self) -> Task:
        return load_tasks(self.record.environment)[self.record.task_id]

    @property
    def key(self) -> tuple[str, str]:
        """Two environments may have tasks with one id."""
        return self.record.environment, self.record.task_id

    @property
    def kind(self) -> tuple[str, str]:
        return self.record.environment, self.record.category

    @property
    def agrees(self) -> bool:
        """With our environment's reckoning of the official verdict."""
        return self.official is None or self.official.valid == passed_official(self.record.to_dict())


def results(
    episodes: Sequence[Judged],
    lost: Sequence[Mapping[str, Any]],
    samples: int | None,
    cost: Mapping[str, Any] | None = None,
    by_bfcl: bool = True,
) -> dict[str, Any]:
    """Everything that is known of these episodes, by category and for all together, as plain data.

    Args:
        lost: as `recipe.evaluation.play.play_all` returns it.
        samples: wanted of each task; None for episodes of a training run, which have neither pass@k nor a score.
        cost: as `cost_of`. Episodes that a search found have no score of BFCL's.
        by_bfcl: whether they were played by BFCL's own rules.
    """
    searched = cost is not None and cost["strategy"] != "plain"
    environments = dict.fromkeys(item.record.environment for item in episodes)
    known = Counter((name, task.category) for name in environments for task in load_tasks(name).values())
    groups = {kind: found for kind in known if (found := [item for item in episodes if item.kind == kind])}
    names = Counter(category for _, category in groups)
    categories = {
        category if names[category] < 2 else f"{name}/{category}": _group(items, samples)
        for (name, category), items in groups.items()
    }
    parts = {part: [item for item in episodes if item.part == part] for part in ("dev", "test")}
    official = samples and by_bfcl and not searched and [*environments] == ["bfcl"] and len(groups) == len(known)
    every = official and not lost and len({item.key for item in episodes if item.official}) == known.total()
    whole = {  # of episodes that were not chosen as an evaluation, only categories all of whose tasks are there
        kind: items for kind, items in groups.items() if samples or len({item.key for item in items}) == known[kind]
    }
    return {
        "categories": categories,
        "overall": _group(episodes, samples) if episodes else None,
        "parts": {part: _group(items, samples) for part, items in parts.items()} if all(parts.values()) else {},
        "multi_turn_official": fmean(one["acc_official"]["mean"] for one in categories.values()) if official else None,
        "multi_turn_bfcl": fmean(one["acc_bfcl"]["mean"] for one in categories.values()) if every else None,
        "leaderboard": None if searched else _leaderboard(environments, whole),
        "cost": cost,
        "lost": list(lost),
        "verdicts": agreement(episodes),
    }


def _leaderboard(
    environments: Iterable[str], groups: Mapping[tuple[str, str], Sequence[Judged]]
) -> dict[str, Any] | None:
    """Averages as the leaderboard of an environment's source has them; None where no environment has one."""
    maker = next((found for name in environments if (found := averages_of(name)) is not None), None)
    if maker is None:
        return None
    accuracies = {
        category: (fmean(passed_official(item.record.to_dict()) for item in items), len({item.key for item in items}))
        for (_, category), items in groups.items()
    }
    averages, missing = maker(accuracies)
    played = sum(tasks for _, tasks in accuracies.values())
    return {"averages": dict(averages), "missing": list(missing), "tasks": played} if averages else None


def _group(items: Sequence[Judged], samples: int | None) -> dict[str, Any]:
    metrics = [episode_metrics(item.record.to_dict()) for item in items]
    clusters = [(item.record.environment, item.task.cluster) for item in items]
    columns = {name: [episode[name] for episode in metrics] for name in ("progress", *ACCURACIES)}
    estimated = {name: (values, clusters) for name, values in columns.items()}
    if asked := [(item.official, cluster) for item, cluster in zip(items, clusters, strict=True) if item.official]:
        estimated["acc_bfcl"] = [float(bool(verdict.valid)) for verdict, _ in asked], [cluster for _, cluster in asked]
    found: dict[str, Any] = {"episodes": len(items), "tasks": len({item.key for item in items})}
    found |= {name: _estimate(values, among) for name, (values, among) in estimated.items()}
    found["call_rate"] = fmean(episode["calls"] > 0 for episode in metrics)
    found |= {name: fmean(episode[name] for episode in metrics) for name in RATES}
    found["stop"] = {reason: fmean(episode[f"stop/{reason}"] for episode in metrics) for reason in STOP_REASONS}
    if samples and samples > 1:
        have = Counter(item.key for item in items)
        found["pass_tasks"] = sum(number >= samples for number in have.values())
        for key, (_, estimate) in PASS.items():
            found[key] = {name: _pass(items, columns[name], samples, estimate) for name in ACCURACIES}
    return found


def _estimate(values: Sequence[float], clusters: Iterable[Hashable]) -> dict[str, float | None]:
    low, high = interval(values, clusters, bounds=SHARE) or (None, None)
    return {"mean": fmean(values), "low": low, "high": high}


def _pass(items: Sequence[Judged], values: Sequence[float], samples: int, estimate: Any) -> dict[str, Any]:
    """An estimate over the tasks that have all samples, the same for each k: 1 to 4, 8, 16, ..., and all."""
    tasks: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for item, value in zip(items, values, strict=True):
        tasks[item.record.environment, item.task.cluster, item.record.task_id].append(value)
    whole = {key: passed for key, passed in tasks.items() if len(passed) >= samples}
    ks = sorted(k for k in {3, samples, *(2**power for power in range(samples.bit_length()))} if k <= samples)
    chances = {k: [estimate(len(passed), int(sum(passed)), k) for passed in whole.values()] for k in ks if whole}
    return {str(k): _estimate(found, [key[:2] for key in whole]) for k, found in chances.items()}


def agreement(episodes: Sequence[Judged]) -> dict[str, Any] | None:
    """BFCL's own verdicts beside `acc_official`: episodes without a listed difference must all agree.

    None where nothing but the environment judged.
    """
    asked = [item for item in episodes if item.official is not None]
    if not asked:
        return None
    plain = [item for item in asked if not item.official.differences]
    named: dict[str, Counter[str]] = defaultdict(Counter)
    for item in asked:
        for name in item.official.differences:
            named[name].update(episodes=1, disagree=int(not item.agrees))
    return {
        "episodes": len(asked),
        "asked": sum(item.official.reason != "multi_turn:force_terminated" for item in asked),
        "agree": sum(item.agrees for item in asked),
        "without_listed_difference": len(plain),
        "disagree_without_listed_difference": sorted(item.record.task_id for item in plain if not item.agrees),
        "differences": {name: dict(counts) for name, counts in sorted(named.items())},
        "reasons": dict(Counter(item.official.reason or "valid" for item in asked).most_common()),
    }


def cost_of(paths: Sequence[Path]) -> dict[str, Any] | None:
    """What the finished episodes in these files have cost, in means over episodes; None unless an evaluation's.

    A search spends more than the episode that it ends with shows: `nodes` are the messages of all branches, `dropped`
    the branches of all episodes that gave other results when they were played again.

    Raises:
        PreflightError: some were found by a search and others were not.
    """
    own = [path for path in paths if path.name == EPISODES]
    found = [item for path in own for item in finished_lines(path).values()]
    searched = {"search" in line for line, _ in found} | ({False} if len(own) < len(paths) else set())
    if len(searched) > 1:
        raise PreflightError("--strategy dfsdt found only some of these episodes: judge each strategy by itself")
    if not found or len(own) < len(paths):
        return None
    rows = []
    for line, record in found:
        messages = sum(len(turn.steps) for turn in record.turns)
        search = line.get("search", {"nodes": messages, "branches": 1, "dropped": 0})
        tokens = {name: line.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
        rows.append({"messages": messages, **search, **tokens})
    cost: dict[str, Any] = {name: fmean(row[name] for row in rows) for name in rows[0]}
    cost |= {"strategy": "dfsdt" if True in searched else "plain", "dropped": sum(row["dropped"] for row in rows)}
    spent = f"{cost['prompt_tokens']:,.0f} + {cost['completion_tokens']:,.0f} tokens of prompts and messages"
    cost["text"] = (
        f"strategy {cost['strategy']}: {cost['nodes']:.1f} messages in {cost['branches']:.1f} branches and {spent} an "
        f"episode, of which {cost['messages']:.1f} messages are kept; {cost['dropped']} branches dropped"
    )
    return cost


def text(found: Mapping[str, Any]) -> str:
    """The results as tables for people."""
    parts = []
    if (overall := found["overall"]) is not None:
        rows = {name.removeprefix("multi_turn_"): group for name, group in found["categories"].items()}
        rows |= {"all": overall, **found["parts"]}
        parts += [_accuracy_table(rows), _stop_table(rows)]
        if found["cost"]:
            parts.append(fill(found["cost"]["text"], 120))
        parts += [_pass_table(rows, key, name) for name in ACCURACIES for key in PASS if key in overall]
        if (score := found["multi_turn_official"]) is not None:
            parts.append(f"acc_official, mean of the four categories over {overall['tasks']} tasks: {score:.3f}")
        if (score := found["multi_turn_bfcl"]) is not None:
            parts.append(f"mean of the categories by BFCL's own checker, over all its tasks: {score:.3f}")
        if board := found["leaderboard"]:
            averages = "   ".join(f"{name} {value:.3f}" for name, value in board["averages"].items())
            missing = f"\n  not played: {', '.join(board['missing'])}" if board["missing"] else ""
            parts.append(f"means formed as on the leaderboard, over {board['tasks']} tasks:\n  {averages}{missing}")
        if found["verdicts"]:
            parts.append(_agreement_text(found["verdicts"]))
    settings = found.get("settings") or {}
    told = {**(found.get("source") or {}), **settings.get("made_with", {}), "user": settings.get("user")}
    parts.append(fill(", ".join(f"{name} {value}" for name, value in told.items() if value), 120))
    if found.get("note"):
        parts.append(found["note"])
    if lost := Counter(item["reason"] for item in found["lost"]):
        causes = "".join(f"\n  {number} x {reason}" for reason, number in lost.most_common(3))
        parts.append(f"LOST: {lost.total()} episodes are in no number; the same command plays them again:{causes}")
    return "\n\n".join(filter(None, parts))


def _accuracy_table(rows: Mapping[str, Any]) -> str:
    by_source = ["acc_bfcl"] if all("acc_bfcl" in group for group in rows.values()) else []
    names = (*ACCURACIES, *by_source, "progress")
    rates = {"called": "call_rate", "format": "format_rate", "calls ok": "call_success_rate"}
    lines = [["category", "tasks", "episodes", *names, *rates, "calls"]]
    for category, group in rows.items():
        means = (_shown(group[name]) for name in names)
        shares = (f"{group[name]:.3f}" for name in rates.values())
        lines.append([category, str(group["tasks"]), str(group["episodes"]), *means, *shares, f"{group['calls']:.1f}"])
    return aligned(lines)


def _shown(estimate: Mapping[str, float | None]) -> str:
    form = "{mean:.3f}" + " [{low:.3f}, {high:.3f}]" * (estimate["low"] is not None)
    return form.format(**estimate)


def _stop_table(rows: Mapping[str, Any]) -> str:
    used = [reason for reason in STOP_REASONS if any(group["stop"][reason] for group in rows.values())]
    lines = [[name, *(f"{group['stop'][reason]:.1%}" for reason in used)] for name, group in rows.items()]
    return aligned([["how episodes ended", *used], *lines])


def _pass_table(rows: Mapping[str, Any], key: str, name: str) -> str:
    ks = rows["all"][key][name]
    lines = [[name, "tasks", *(f"{PASS[key][0]}{k}" for k in ks)]]
    for category, group in rows.items():
        means = (_shown(group[key][name][k]) if k in group[key][name] else "-" for k in ks)
        lines.append([category, f"{group['pass_tasks']} of {group['tasks']}", *means])
    return aligned(lines)


def _agreement_text(verdicts: Mapping[str, Any]) -> str:
    wrong, early = verdicts["disagree_without_listed_difference"], verdicts["episodes"] - verdicts["asked"]
    agree = f"BFCL's own checker agrees with acc_official on {verdicts['agree']} of {verdicts['episodes']} episodes"
    lines = [f"{agree}; {early} of them stopped before their last turn and fail without being asked."]
    lines += [
        f"  listed difference {name}: {counts['episodes']} episodes, {counts['disagree']} of them with another verdict"
        for name, counts in verdicts["differences"].items()
    ]
    if wrong:
        lines.append(f"  DISAGREE WITHOUT A LISTED DIFFERENCE: {len(wrong)}, such as {', '.join(wrong[:5])}")
    return "\n".join(lines)
