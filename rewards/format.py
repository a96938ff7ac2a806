"""Format reward (stage 1): steps that parse and calls that work, and above all turns that pass. Range [0, 2].

The mean over all K user turns of

    1 + (w + s) / 2    for a turn that passed
    (w + s) / 4        for any other

    w  well-formed steps (messages of the model) / steps of the turn
    s  calls that worked / calls made, over the distinct (name, arguments) of the turn

In an episode in which no turn with gold calls passed, none counts as passed: answering always passes turns in which
nothing is to be done. So whatever solves nothing earns 0.5 at most, whatever solves a share p of the turns earns p at
least, and with perfect writing 0.5 + 1.5 p. For example, of three turns the first passed (w = s = 1), the second did
not (w = 1, s = .5) and the third was not reached: (2 + .375 + 0) / 3 = .79.

A reward for working calls alone would pay an easy call a turn (`add(1, 1)`) more than honest work that meets errors.
A quarter is the largest weight under which solving nothing never earns more than solving half. It is not zero because
at first most rollouts solve nothing, and differ only in how they write.

What this rewards in a group in which nothing is solved: one distinct safe call in each turn earns .49, an honest call
that fails earns .25. GRPO divides by the spread within the group, so there the difference has full weight, and pushes
towards the safe call. It ends where a rollout solves a turn, and stays below the gate of stage 1.

Rules of w + s, each against a way of earning it without calling functions properly:

    a turn not reached, or without a step              0      stopping after one good turn
    a turn with gold calls in which none counts        0      answering always; calling once, then only answering
    a turn without gold calls                          s = 1 if no call counts, else the share of those that worked
    a pair that failed once in a turn has failed              hiding an error behind a repetition
    the same pair counts once a turn                          diluting one error among repetitions
    what worked in an earlier turn counts again only
      where it is gold's call or an error                     paying every turn with `ls()`

An environment that judges the episode only has no turns that pass: its steps are taken for those of one turn, which
passes if the episode does. There a turn without calls counts for nothing: the model may ask its user first.

Gold play earns 2.0 on all tasks, so nothing can earn more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards.metrics import (
    asks_for_calls,
    calls_of,
    counts,
    did_work,
    episode_metrics,
    episode_of,
    pair_of,
    passed,
    succeeded,
    worked_before,
)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, float]:
    """verl's reward function: `score` and the metrics. Only `extra_info["episode"]` is read."""
    episode = episode_of(extra_info)
    return {"score": format_score(episode), **episode_metrics(episode)}


def format_score(record: Mapping[str, Any]) -> float:
    """The reward of one episode's record."""
    before = worked_before(record)
    worked, scores = did_work(record), []
    for turn in _units(record):
        form = _form(turn, before)
        scores.append(1 + form / 2 if worked and passed(turn, record) else form / 4)
    return sum(scores) / len(scores) if scores else 0.0


def _units(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The turns; where none is judged by itself, all their steps as those of one."""
    turns = record["turns"]
    if not turns or any(turn["passed"] is not None for turn in turns):
        return list(turns)
    steps = [step for turn in turns for step in turn["steps"]]
    done = bool(record["outcome"] and record["outcome"]["passed"])  # without a call: then none was asked for
    return [{"passed": None, "reached": True, "facts": {"has_gold": not done}, "steps": steps}]


def _form(turn: Mapping[str, Any], before: set[tuple[str, str]]) -> float:
    """w + s of a turn. `before` are the pairs that worked in earlier turns; those of this one join."""
    steps = turn["steps"]
    if not turn["reached"] or not steps:
        return 0.0
    worked: dict[tuple[str, str], bool] = {}
    for call in calls_of(turn):
        if counts(call, before):
            pair = pair_of(call)
            worked[pair] = worked.get(pair, True) and succeeded(call)
    before.update(pair for pair, good in worked.items() if good)
    if asks_for_calls(turn) and not worked:
        return 0.0
    well_formed = sum(bool(step["well_formed"]) for step in steps) / len(steps)
    success = sum(worked.values()) / len(worked) if worked else 1.0
    return well_formed + success
