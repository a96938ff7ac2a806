"""Apply a reward to the episodes that a run has stored, without a model, and compare it with the one they had.

    python -m recipe.rescore RUN_DIR --reward my_reward.py [--name compute_score] [price=0.02 ...]

Trying a reward costs seconds this way instead of a training run: does it rank the episodes as intended, does it give
groups of rollouts a spread that GRPO can learn from, and what earns the most under it?
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from interaction.episode_file import whole_of
from recipe.columns import aligned
from recipe.errors import PreflightError
from recipe.report import read_records
from recipe.settings import LONGEST_WAIT
from recipe.user_code import reward_file
from recipe.user_code.reward_arguments import read_argument
from recipe.user_code.reward_process import RewardProcess, RewardTimeout
from recipe.user_code.reward_result import RewardError

TIMEOUT = 300.0
"""Seconds for one episode, as `reward.timeout` in training."""


@dataclass
class Column:
    """Old and new scores of one stage, split and category."""

    scores: list[tuple[float | None, float]] = field(default_factory=list)
    """Old and new of each episode; None where no number was stored."""
    groups: dict[Any, list[float]] = field(default_factory=lambda: defaultdict(list))
    """New scores by (step, prompt): what GRPO compares with each other."""

    @property
    def compared(self) -> list[tuple[float, float]]:
        """Old and new, of the episodes that have both."""
        return [(old, new) for old, new in self.scores if old is not None]

    @property
    def without_spread(self) -> float:
        """Share of the groups whose rollouts all score the same, from which GRPO learns nothing."""
        return fmean(float(len(set(scores)) == 1) for scores in self.groups.values())


def rescore(run: Path, reward: Callable[..., Any]) -> dict[tuple[str, str, str], Column]:
    """Score every stored episode again. Keys: (stage, split, category), `all` being all categories together.

    Args:
        reward: called as verl calls one; gives a finite score, or a dict with `score`.

    Raises:
        PreflightError: the run holds no episodes, or the reward failed; the message names the episode.
    """
    columns: dict[tuple[str, str, str], Column] = defaultdict(Column)
    damaged: list[Path] = []
    for path in sorted({whole_of(path) for path in run.glob("*/rollouts/*/*.jsonl")}):
        stage, split = path.parts[-4], path.parts[-2]
        for record in read_records(path):
            try:
                question = _question(record, split)
                category = question["data_source"].rpartition("/")[2]
            except (KeyError, TypeError, AttributeError):
                damaged.append(path)
                continue
            try:
                result = reward(**question)
            except RewardError as error:
                longer = " A longer call needs a higher --timeout." if isinstance(error, RewardTimeout) else ""
                raise PreflightError(f"{error}. This was on {record['task_id']} in {path}.{longer}") from error
            new = result["score"] if isinstance(result, dict) else result
            for name in (category, "all"):
                column = columns[stage, split, name]
                column.scores.append((_number(record.get("score")), new))
                column.groups[path.stem, str(record.get("uid"))].append(new)
    if not columns:
        raise PreflightError(f"{run} holds no episodes: expected {run}/<stage>/rollouts/<split>/<step>.jsonl")
    if damaged:
        print(f"NOTE {len(damaged)} stored lines are no whole episode and are left out, the first in {damaged[0]}")
    if unknown := sum(old is None for key, column in columns.items() if key[2] == "all" for old, _ in column.scores):
        print(f"NOTE {unknown} episodes were stored without a finite score and are in no old mean and no correlation")
    return columns


def _question(record: dict[str, Any], split: str) -> dict[str, Any]:
    """What verl asks a reward of this episode."""
    episode = record["episode"]
    names = {"environment": episode["environment"], "task_id": episode["task_id"]}
    return {
        "data_source": f"{episode['environment']}/{episode['category'].removeprefix('multi_turn_')}",
        "solution_str": "".join(step["text"] for turn in episode["turns"] for step in turn["steps"]),
        "ground_truth": "[]",
        "extra_info": {
            "split": split,
            **names,
            "episode": episode,
        },
    }


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


def correlation(pairs: list[tuple[float, float]]) -> float | None:
    """Pearson's correlation; None where one of the two does not vary."""
    if not pairs:
        return None
    first, second = zip(*pairs, strict=True)
    spread = pstdev(first) * pstdev(second)
    if spread == 0:
        return None
    a, b = fmean(first), fmean(second)
    return fmean((x - a) * (y - b) for x, y in pairs) / spread


def table(columns: dict[tuple[str, str, str], Column]) -> str:
    """Old against new as text, a line for each stage, split and category: by name, `all` after its categories."""
    lines = [["stage", "split", "category", "episodes", "old mean", "new mean", "correlation", "groups alike"]]
    for (stage, split, category), column in sorted(columns.items(), key=_place):
        related, old = correlation(column.compared), [old for old, _ in column.compared]
        lines.append(
            [
                stage,
                split,
                category,
                str(len(column.scores)),
                f"{fmean(old):.3f}" if old else "-",
                f"{fmean(new for _, new in column.scores):.3f}",
                "-" if related is None else f"{related:.3f}",
                f"{column.without_spread:.0%}" if split == "train" else "-",
            ]
        )
    return aligned(lines)


def _place(line: tuple[tuple[str, str, str], Column]) -> tuple[str, str, bool, str]:
    stage, split, category = line[0]
    return stage, split, category == "all", category


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= LONGEST_WAIT:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0 and at most {LONGEST_WAIT:.0f}")
    return seconds


def main() -> None:
    """Entry point of `python -m recipe.rescore`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.rescore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of a run, such as outputs/default")
    parser.add_argument("--reward", required=True, help="Python file, or pkg://rewards.progress")
    parser.add_argument("--name", default="compute_score", help="function in that file")
    parser.add_argument("--timeout", type=_seconds, default=TIMEOUT, help="seconds that one episode may take")
    parser.add_argument(
        "arguments", nargs="*", type=read_argument, metavar="NAME=VALUE", help="arguments of the reward"
    )
    given = parser.parse_intermixed_args()
    try:
        with RewardProcess(given.reward, given.name, given.timeout, dict(given.arguments)) as reward:
            columns = rescore(given.run, reward)
        print(table(columns))
    except (PreflightError, reward_file.RewardFileError) as error:
        parser.exit(1, f"{error}\n")
    except OverflowError:
        parser.exit(1, f"the scores of {given.reward} are too large to be averaged\n")


if __name__ == "__main__":
    main()
