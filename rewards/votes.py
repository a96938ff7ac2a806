"""Votes of people or of a model on single steps (its messages), as the step reward takes them in place of its rules.

    python -m rewards.votes outputs/default/stage2_base/rollouts/train/000001.jsonl > votes.jsonl

writes one line a step of the stored episodes, to be filled in; of episodes in which the same was said, one:

    {"episode": "6c9f...", "task_id": "...", "step": 0, "turn": 0, "text": "...", "results": [...],
     "succ_calling": [1, 1, 0], "contribution": [5, 4, 5], "is_solved": ["Solved", "Unsure"]}

`step` counts the steps of the episode from 0. `succ_calling` has a 0 or 1 from each voter, `contribution` 0 to 5;
every step with calls, or that did not parse, needs both. `is_solved` (Solved, Unsure, Unsolved: 1, 0.5, 0) belongs
to the last step of a user turn; left empty, the turn's own verdict stands. Votes are averaged; several lines on one
step add their votes. Further fields are for the voters to read.

`episode` says whose votes they are: a hash of what was said. So they never count for another episode of the same
scenario, and the reward stays a function of the record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SOLVED = {"Solved": 1.0, "Unsure": 0.5, "Unsolved": 0.0}
"""What a vote on a query or a user turn says, and what it is worth."""
_SPELLINGS = {f"{prefix}{name}".lower(): value for name, value in SOLVED.items() for prefix in ("", "AnswerStatus.")}
"""As StepTool's files have it, and as people write it: in capitals or not."""
_FIELDS = {"succ_calling": 1.0, "contribution": 5.0, "is_solved": 1.0}
"""The largest vote of each field."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The averaged votes on one step."""

    success: float = 0.0
    contribution: float = 0.0
    """From 0 to 1."""
    solved: float | None = None
    complete: bool = False
    """Whether there were votes on both success and contribution."""


def episode_key(record: Mapping[str, Any]) -> str:
    """What tells this episode from others: a hash of its task and of all that was said in the model's place."""
    turns = [*record.get("given", ()), *record["turns"]]
    texts = [[step["text"] for step in turn["steps"]] for turn in turns]
    named = [record["environment"], record["task_id"], texts]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]


def find(path: str, record: Mapping[str, Any]) -> list[list[Vote]] | None:
    """The votes on the steps of each turn of this episode, or None if the file has none; zeros for a step without.

    Raises:
        ValueError: the file cannot be read or has a wrong line; votes are missing, or are for no step of the episode.
    """
    key = episode_key(record)
    if (steps := _read(path).get(key)) is None:
        return None
    found, position, where = list[list[Vote]](), 0, f"{path}, episode {key}"
    for turn in record["turns"]:
        found.append([])
        for step in turn["steps"]:
            vote = steps.get(position, Vote())
            if (step["calls"] or not step["well_formed"]) and not vote.complete:
                needed = "give succ_calling and contribution"
                raise ValueError(f"{where}: step {position} has calls or did not parse; {needed}")
            if vote.solved is not None and step is not turn["steps"][-1]:
                raise ValueError(f"{where}: step {position} has is_solved, but is not the last step of its turn")
            found[-1].append(vote)
            position += 1
    if surplus := [step for step in steps if step >= position]:
        raise ValueError(f"{where}: votes on step {min(surplus)}, but the episode has steps 0 to {position - 1}")
    return found


@cache
def _read(path: str) -> Mapping[str, Mapping[int, Vote]]:
    """Votes by episode and step. Read once a process: a reward is asked thousands of times."""
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"votes={path} cannot be read: {error.strerror}. Look at reward_kwargs.votes") from error
    given: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for number, text in enumerate(lines, 1):
        if text.strip():
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError("expected an object with episode, step and votes")
                episode, position = line.get("episode"), line.get("step")
                if type(episode) is not str or type(position) is not int or position < 0:
                    raise ValueError(f"'episode' is {episode!r}, 'step' {position!r}; expected a text, and 0 or more")
                step = given[episode][position]
                for field, most in _FIELDS.items():
                    step[field] += [_number(field, vote, most) for vote in line.get(field) or []]
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    return {key: {step: _averaged(votes) for step, votes in steps.items()} for key, steps in given.items()}


def worth(vote: Any) -> float | None:
    """1, 0.5 or 0 for a word of `SOLVED`, with `AnswerStatus.` before it or not; None for anything else."""
    return _SPELLINGS.get(vote.lower()) if isinstance(vote, str) else None


def _number(field: str, vote: Any, most: float) -> float:
    value = worth(vote) if field == "is_solved" and isinstance(vote, str) else vote
    if not isinstance(value, int | float) or not 0 <= value <= most:
        expected = "Solved, Unsure or Unsolved" if field == "is_solved" else f"0 to {most:g}"
        raise ValueError(f"a vote in {field!r} is {vote!r}; expected {expected}")
    return float(value)


def _averaged(votes: Mapping[str, list[float]]) -> Vote:
    success, contribution, solved = (votes.get(field) or [] for field in _FIELDS)
    return Vote(
        success=sum(success) / len(success) if success else 0.0,
        contribution=sum(contribution) / len(contribution) / 5 if contribution else 0.0,
        solved=sum(solved) / len(solved) if solved else None,
        complete=bool(success and contribution),
    )


def blank(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines without votes for all steps of an episode."""
    key, number = episode_key(record), 0
    for index, turn in enumerate(record["turns"]):
        for step in turn["steps"]:
            line = {
                "episode": key,
                "task_id": record["task_id"],
                "step": number,
                "turn": index,
                "user": turn["user"],
                "text": step["text"],
                "results": [call["result"] for call in step["calls"]],
                "succ_calling": [],
                "contribution": [],
            }
            yield line | ({"is_solved": []} if step is turn["steps"][-1] else {})
            number += 1


def main() -> None:
    """Entry point of `python -m rewards.votes`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "rollouts", type=argparse.FileType(encoding="utf-8"), nargs="+", help="stored episodes, *.jsonl"
    )
    written: set[str] = set()
    for file in parser.parse_args().rollouts:
        for record in (json.loads(line)["episode"] for line in file):
            if (key := episode_key(record)) not in written:
                written.add(key)
                for line in blank(record):
                    print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
