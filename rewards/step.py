"""Step rewards: each step is paid for what it does, as in StepTool (arXiv 2410.07745), by rules or by votes.

A step is one message of the model. `step_scores` has one number a step, in order over all user turns; `score` is
their sum. A step earns

    (alpha * SuccCalling + Contribution) / (alpha + 1)      for its calls
    + turn_bonus * IsSolved                                 if it is the last one of its turn
    + episode_bonus * the least IsSolved of all turns       if it is the last one of its episode

By rule, in a turn with N gold calls:

    SuccCalling   the step parsed and none of its calls is an error. Shared out over the turn: a step gets its
                  calls / max(N, all calls of the turn), where a malformed step is one call, and what worked before
                  in the episode is none, unless it is gold's call
    Contribution  the larger of two shares: of gold's calls, those that it makes (same function, arguments and result,
                  each once a turn); of what gold changes, how much more stands as gold leaves it than ever before in
                  this turn. Where they add up to more than 1 over the turn, they are scaled down to 1
    IsSolved      the turn passed

So a repetition, an undo and its redo, and a turn played in small pieces earn nothing more, calls at random earn at best
their share of successes, and gold play earns the most there is, however it is divided into steps.

A turn without gold calls has one thing to be paid for, answering without a call: SuccCalling 1 / steps and
Contribution 1, beside IsSolved. As in the progress reward, such turns pay only where a turn with gold calls passed.

The calls of one turn earn at most `bound`, which is `turn_bonus` unless set; above it all of them are scaled down. By
rule they earn at most 1, so this takes a bound below 1. Solving a turn never pays less than looking busy in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards import votes as annotation
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

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """What the steps of one user turn did, in order."""

    success: list[float]
    """SuccCalling, 0 to 1."""
    contribution: list[float]
    """Contribution, 0 to 1."""
    solved: float
    """IsSolved of the turn: 1, 0, or between with votes."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    alpha: float = 1.0,
    turn_bonus: float = 1.0,
    episode_bonus: float = 1.0,
    bound: float | None = None,
    votes: str | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """verl's reward function: `score`, `step_scores` and the metrics. Only `extra_info["episode"]` is read.

    Args:
        alpha: weight of SuccCalling beside Contribution.
        turn_bonus: paid to the last step of a solved turn.
        episode_bonus: paid to the last step of an episode with all turns solved, in part for votes in between.
        bound: the most that the calls of one turn earn. None: `turn_bonus`; infinity: no bound.
        votes: path of an annotation file (`rewards/votes.py`). Its votes stand in for the rules in the episodes it has;
            the others follow the rules.

    Returns:
        Beside score, step_scores and `episode_metrics`: `step_share`, the score as a share of gold's; `step_success`,
        the share of steps that worked among those with calls or parse errors; `contribution`, the mean over turns
        with gold calls; `regressed`, the number of steps that led away from gold's state; `voted`, 1 if votes were
        used.

    Raises:
        ValueError: a parameter is out of range, there is no record, it lacks facts, or the votes do not fit it.
    """
    bound = turn_bonus if bound is None else bound
    for name, value in {
        "alpha": alpha,
        "turn_bonus": turn_bonus,
        "episode_bonus": episode_bonus,
        "bound": bound,
    }.items():
        if isinstance(value, bool) or not value >= 0 or (math.isinf(value) and name != "bound"):
            raise ValueError(f"{name} is {value!r}; expected a number, 0 or more. It stands under reward_kwargs")
    record = episode_of(extra_info)
    found = annotation.find(votes, record) if votes else None
    marks = marks_by_rule(record) if found is None else marks_by_votes(record, found)

    scores: list[float] = []
    for mark in marks:
        shaped = [
            (alpha * success + gain) / (alpha + 1)
            for success, gain in zip(mark.success, mark.contribution, strict=True)
        ]
        scale = bound / sum(shaped) if sum(shaped) > bound else 1.0
        scores += [value * scale for value in shaped]
        if shaped:
            scores[-1] += turn_bonus * mark.solved
    if scores:
        scores[-1] += episode_bonus * min(mark.solved for mark in marks)
    score = math.fsum(scores)
    most = len(marks) * (min(1.0, bound) + turn_bonus) + episode_bonus
    return {
        "score": score,
        "step_scores": scores,
        "step_share": score / most if most else 0.0,
        **_step_metrics(record, marks),
        "voted": float(found is not None),
        **episode_metrics(record),
    }


def marks_by_rule(record: Record) -> list[TurnMarks]:
    """The marks of each turn by the rules above.

    Raises:
        ValueError: the record lacks the facts that the rules need.
    """
    solved_some, before = did_work(record), worked_before(record)
    marks = []
    for turn in record["turns"]:
        working = asks_for_calls(turn)
        if working and not turn["facts"].get("gold_calls"):
            raise ValueError(
                f"the record of {record.get('task_id')} does not say which calls are gold's: its environment gives no "
                "`gold_calls` (docs/your_tools.md#facts-for-the-step-reward). Give votes for it, or another reward"
            )
        success, contribution = (
            (_success(turn, before), _contribution(turn)) if working else _waiting(turn, solved_some)
        )
        marks.append(TurnMarks(success, contribution, float(passed(turn, record) and solved_some)))
    return marks


def marks_by_votes(record: Record, found: Sequence[Sequence[annotation.Vote]]) -> list[TurnMarks]:
    """The marks of each turn as voted; a turn without votes on IsSolved keeps its verdict."""
    marks = []
    for turn, votes in zip(record["turns"], found, strict=True):
        solved = votes[-1].solved if votes and votes[-1].solved is not None else float(passed(turn, record))
        marks.append(TurnMarks([vote.success for vote in votes], [vote.contribution for vote in votes], solved))
    return marks


def _success(turn: Record, before: set[tuple[str, str]]) -> list[float]:
    """SuccCalling of each step of a turn with gold calls; adds up to at most 1. What worked joins `before`."""
    attempts, shares = 0, []
    for step in turn["steps"]:
        counted = 0
        for call in step["calls"]:
            counted += counts(call, before)
            if succeeded(call):
                before.add(pair_of(call))
        attempts += counted or not step["well_formed"]
        shares.append(counted if _worked(step) else 0)
    most = max(turn["facts"]["gold_calls"], attempts)
    return [share / most for share in shares]


def _contribution(turn: Record) -> list[float]:
    """Contribution of each step of a turn with gold calls; adds up to at most 1."""
    best = turn["facts"].get("closeness") or 0.0
    gains = []
    for step in turn["steps"]:
        matched = sum(call["facts"].get("gold") is not None for call in step["calls"]) / turn["facts"]["gold_calls"]
        closeness = step["facts"].get("closeness") or 0.0
        gains.append(max(matched, closeness - best))
        best = max(best, closeness)
    total = max(1.0, math.fsum(gains))
    return [gain / total for gain in gains]


def _waiting(turn: Record, solved_some: bool) -> tuple[list[float], list[float]]:
    """SuccCalling and Contribution in a turn without gold calls."""
    steps = len(turn["steps"])
    success, contribution = [0.0] * steps, [0.0] * steps
    if solved_some and turn["passed"] and turn["ended"] == "answer" and not any(calls_of(turn)):
        success[-1], contribution[-1] = 1 / steps, 1.0
    return success, contribution


def _worked(step: Record) -> bool:
    return bool(step["well_formed"] and step["calls"]) and all(map(succeeded, step["calls"]))


def _step_metrics(record: Record, marks: list[TurnMarks]) -> dict[str, float]:
    turns = record["turns"]
    acting = [step for turn in turns for step in turn["steps"] if step["calls"] or not step["well_formed"]]
    gains = [sum(mark.contribution) for turn, mark in zip(turns, marks, strict=True) if asks_for_calls(turn)]
    return {
        "step_success": sum(map(_worked, acting)) / len(acting) if acting else 0.0,
        "contribution": sum(gains) / len(gains) if gains else 0.0,
        "regressed": float(sum(map(_regressions, turns))),
    }


def _regressions(turn: Record) -> int:
    values = [
        turn["facts"].get("closeness"),
        *(step["facts"].get("closeness") for step in turn["steps"] if step["calls"]),
    ]
    known = [value for value in values if value is not None]
    return sum(after < before for before, after in zip(known, known[1:], strict=False))
