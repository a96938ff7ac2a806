"""Where the rewards of an episode stand among its tokens, and which token belongs to which step.

A step is one message of the model. Each of a reward's `step_scores` is put on the last token of its step, a single
score on the last token of the last step; an advantage estimator with a critic sees no reward on a masked token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of one step in the response."""

    turn: int
    """User turn in which it was said, from 0."""
    start: int
    end: int
    """Not included."""


def steps_of(episode: Mapping[str, Any]) -> int:
    """Number of steps in an episode's record, all turns together: how many `step_scores` there are."""
    return sum(len(turn["steps"]) for turn in episode["turns"])


def check_step_scores(step_scores: Any, steps: int, score: float) -> list[float]:
    """The scores as floats.

    Raises:
        ValueError: they are not one finite number a step, or their sum is not `score`.
    """
    if not isinstance(step_scores, Sequence) or isinstance(step_scores, str) or len(step_scores) != steps:
        raise ValueError(
            f"the reward's step_scores are {step_scores!r:.200}; the episode has {steps} steps: give a list with a "
            'number for each message of the model (each step of each turn in extra_info["episode"]), in their order'
        )
    for position, value in enumerate(step_scores):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the reward's step_scores[{position}] is {value!r}; expected a finite number")
    total = math.fsum(step_scores)
    if not math.isclose(total, score, rel_tol=1e-6, abs_tol=1e-6):
        raise ValueError(
            f"the reward's step_scores sum to {total:.6g}, its score is {score:.6g}; return the sum as `score`, and "
            "other figures under names of their own"
        )
    return [float(value) for value in step_scores]


@dataclass(frozen=True, slots=True)
class Rewards:
    """What an episode is trained on."""

    score: float | None
    """The reward's, less the price of the length; None where there was no reward."""
    step_scores: list[float] | None
    """The same by step; None where the reward gave one score."""
    tokens: list[float] | None
    """The same by token of the response; None where there was no reward, or no step to carry it."""


def rewards_of(
    score: float | None,
    step_scores: Any,
    *,
    steps: int,
    spans: Sequence[Span],
    mask: Sequence[int],
    penalty: float | None = None,
) -> Rewards:
    """What a reward returned, on tokens. `steps` are those of the record; the last step pays the `penalty`.

    Raises:
        ValueError: the score is not finite, the scores of steps do not fit it, or no token can carry them.
    """
    if score is not None and not math.isfinite(score):
        raise ValueError(f"the reward is {score}; trained on, it would make every weight NaN")
    if score is None or not spans:
        return Rewards(score, step_scores, None)
    scores, of_steps = [score], spans[-1:]
    if step_scores is not None and (checked := check_step_scores(step_scores, steps, score)):
        scores, of_steps = checked, spans
    if penalty is not None:
        scores = [*scores[:-1], scores[-1] - penalty]
        score -= penalty
    return Rewards(score, scores if step_scores else step_scores, place(scores, of_steps, mask))


def place(scores: Sequence[float], spans: Sequence[Span], mask: Sequence[int]) -> list[float]:
    """One reward a token of the response: each score on the last token of its step.

    A step that was cut off with the end of the response gives its score to the last token of the model before it.

    Args:
        scores: for the first steps of `spans`, in order; a single one for the episode comes with its last span.
        mask: 1 on tokens of the model.

    Raises:
        ValueError: there is no token of the model to carry a score.
    """
    rewards = [0.0] * len(mask)
    for score, span in zip(scores, spans, strict=False):
        position = min(span.end, len(mask)) - 1
        while position >= 0 and not mask[position]:
            position -= 1
        if position < 0:
            raise ValueError("the response has no token of the model that could carry a reward")
        rewards[position] += score
    return rewards


def number_tokens(spans: Sequence[Span], mask: Sequence[int]) -> tuple[list[int], list[int]]:
    """Step of the episode and user turn of every token of the response, from 0; -1 where the environment speaks.

    Raises:
        ValueError: spans and mask disagree, or two steps touch: then nothing that sees the mask alone could tell
        them apart.
    """
    steps, turns = [-1] * len(mask), [-1] * len(mask)
    for step, span in enumerate(spans):
        if 0 < span.start <= len(mask) and mask[span.start - 1]:
            raise ValueError(f"step {step} begins at token {span.start} without a token of the environment before it")
        for position in range(span.start, min(span.end, len(mask))):
            steps[position], turns[position] = step, span.turn
    if [step >= 0 for step in steps] != [bool(value) for value in mask]:
        raise ValueError(f"the response mask has {sum(map(bool, mask))} tokens of the model, the steps {spans} differ")
    return steps, turns


def overlong_penalty(used: int, budget: int, truncated: bool, *, window: float, penalty: float) -> float:
    """What a long episode costs: DAPO's soft overlong punishment (arXiv 2503.14476, equation 13).

    A score that falls only where the budget ends tells a model nothing about the way there. Tokens of the environment
    count too, since they also cut an episode.

    Args:
        used: tokens of the response, the environment's included.
        budget: tokens it may have: `data.max_response_length`, less where the model's context is shorter.
        truncated: a token limit ended the episode; it pays all.
        window: share of the budget, at its end, over which the price rises linearly from 0.
        penalty: the price at the end of the budget, in units of the score.
    """
    if truncated:
        return penalty
    over = used - (1 - window) * budget
    return penalty * min(1.0, over / (window * budget)) if over > 0 else 0.0
