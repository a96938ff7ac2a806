"""The episodes that a stage has stored with their tokens (`interaction.record_tokens=true`): one JSON object a line.

A line is data from a model's hands. Its token ids are appended through `Trajectory`, as they were when it was played,
so mask, log-probabilities and steps of a line that disagree are found and named.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interaction.environment import task_key_of, task_name
from interaction.record import StopReason
from interaction.trajectory import Trajectory
from recipe.files import LONGEST_LINE, lines
from recipe.offline.stored import Mistake, Place, Stored
from recipe.typed import shown

LARGEST_ID = 2**31 - 1
"""Of a token; the model's vocabulary, which is looked at later, is far smaller."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError)
"""What reading an episode raises that is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file."""

    place: Place
    content: Any
    """The object in it; a `Mistake` where there is none."""


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, blank ones left out."""
    for number, (offset, line) in enumerate(lines(path), 1):
        if line.strip():
            yield Line(Place(path, offset, f"line {number}"), _object(line))


def read_line(place: Place) -> Stored:
    """The trajectory at a place that was read before.

    Raises:
        Mistake: it is not there any more.
    """
    with place.path.open("rb") as file:
        file.seek(place.at)
        content = _object(file.readline(LONGEST_LINE))
    return stored_of(content)


def _object(line: bytes) -> Any:
    if len(line) >= LONGEST_LINE:
        return Mistake(f"has more than {LONGEST_LINE} bytes")
    try:
        content = json.loads(line)
    except UNREADABLE as error:
        return Mistake(f"is no JSON: {shown(str(error), quote=False)}")
    return content if isinstance(content, dict) else Mistake(f"holds {shown(content)}; expected an object")


def attempt(content: Mapping[str, Any]) -> tuple[str, str, str]:
    """Step and launch of an episode, and a name that only it has. A resumed step is played again by a later launch."""
    who = f"{content.get('uid')}/{content.get('session_id')}"
    return str(content.get("step")), str(content.get("launch")), who


def texts_of(content: Mapping[str, Any]) -> list[str]:
    """What the model wrote, step by step, as the record has it; a step that lacks its text has an empty one."""
    return [str(step.get("text", "")) for turn in content["episode"]["turns"] for step in turn["steps"]]


def stored_of(content: Any) -> Stored:
    """The trajectory of a line.

    Raises:
        Mistake: it has none, or one whose parts do not fit together.
    """
    if isinstance(content, Mistake):
        raise content
    tokens = content.get("tokens")
    if tokens is None:
        raise Mistake(
            "tokens: there are none. Play the stage with interaction.record_tokens=true, which stores the token ids"
        )
    if not isinstance(tokens, dict):
        raise Mistake(f"tokens: is {shown(tokens)}; expected prompt, response, mask and logprobs")
    score = _number(content.get("score"), "score")
    try:
        record = content["episode"]
        steps = [(number, step["tokens"]) for number, turn in enumerate(record["turns"]) for step in turn["steps"]]
        environment, task = task_key_of(content)
        truncated = record["stop_reason"] == StopReason.max_tokens
    except UNREADABLE as error:
        raise Mistake(f"episode: is no record of an episode: {type(error).__name__}: {shown(str(error))}") from error
    category = str(content.get("category", "")).removeprefix("multi_turn_")
    reward = content.get("reward")
    numbers = {str(name): value for name, value in reward.items() if _finite(value)} if isinstance(reward, dict) else {}
    uid = content.get("uid")
    return Stored(
        group=task_name(environment, task) if uid is None else str(uid),
        source=f"{environment}/{category}" if category else environment,
        trajectory=_trajectory(tokens, steps),
        score=score,
        step_scores=_scores(content.get("step_scores")),
        reward=numbers,
        truncated=truncated,
    )


def _trajectory(tokens: Mapping[str, Any], steps: list[tuple[int, Any]]) -> Trajectory:
    prompt, response = (_ids(tokens, name) for name in ("prompt", "response"))
    mask, log_probs = tokens.get("mask"), tokens.get("logprobs")
    if not prompt:
        raise Mistake("tokens.prompt: is empty")
    if not isinstance(mask, list) or len(mask) != len(response):
        raise Mistake(f"tokens.mask: expected a list as long as tokens.response, {len(response)}")
    if log_probs is not None:
        if not isinstance(log_probs, list) or len(log_probs) != len(response) or not all(map(_finite, log_probs)):
            raise Mistake(
                f"tokens.logprobs: expected null, or finite numbers as many as tokens.response, {len(response)}"
            )
        log_probs = [float(value) for value in log_probs]
    made, end = Trajectory(prompt), 0
    for number, (turn, place) in enumerate(steps):
        where = f"step {number} of the episode, tokens"
        if not (isinstance(place, list) and len(place) == 2 and all(type(at) is int for at in place)):
            raise Mistake(f"{where}: is {shown(place)}; expected its start and end in tokens.response")
        start, stop = place
        if not end <= start < stop <= len(response):
            raise Mistake(f"{where}: is {place}; expected a place after {end}, up to {len(response)}")
        while stop > start and not mask[stop - 1]:  # the environment's: `Trajectory.go_on`
            stop -= 1
        made.add_context(response[end:start])
        try:
            made.add_step(turn, response[start:stop], None if log_probs is None else log_probs[start:stop])
        except ValueError as error:
            raise Mistake(f"{where}: {error}") from error
        end = stop
    made.add_context(response[end:])
    if made.mask != mask:
        raise Mistake("tokens.mask: is 1 on other tokens than the steps of the episode have")
    return made


def _ids(tokens: Mapping[str, Any], name: str) -> list[int]:
    ids = tokens.get(name)
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token <= LARGEST_ID for token in ids):
        raise Mistake(f"tokens.{name}: expected a list of token ids")
    return ids


def _scores(values: Any) -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise Mistake(f"step_scores: is {shown(values)}; expected a number for each step")
    return [_number(value, f"step_scores[{number}]") for number, value in enumerate(values)] or None


def _number(value: Any, name: str) -> float:
    if not _finite(value) or isinstance(value, bool):
        raise Mistake(f"{name}: is {shown(value)}; expected a finite number")
    return float(value)


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
