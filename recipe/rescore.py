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
from itertools import chain
from pathlib import Path
from statistics import StatisticsError, correlation, fmean
from typing import Any

from interaction.episode_file import whole_of
from interaction.record import question_of
from recipe.files import PreflightError, aligned
from recipe.report.episodes import of_evaluation, read_records
from recipe.reward import RewardError, caller, read_argument


@dataclass
class Column:
    """Scores of one stage, split and category."""

    new: list[float] = field(default_factory=list)
    both: list[tuple[float, float]] = field(default_factory=list)
    """Old and new score of the episodes that were stored with a finite score."""
    groups: dict[Any, set[float]] = field(default_factory=lambda: defaultdict(set))
    """New scores by (step, prompt): what GRPO compares with each other."""


def rescore(run: Path, reward: Callable[..., Any]) -> dict[tuple[str, str, str], Column]:
    """Score every stored episode again. Keys: (stage, split, category), `all` being all categories together.

    Args:
        reward: called as verl calls one; gives a finite score, or a dict with `score`.

    Raises:
        PreflightError: the run holds no episodes.
        RewardError: the reward failed.
    """
    columns: dict[tuple[str, str, str], Column] = defaultdict(Column)
    damaged = 0
    paths = sorted({whole_of(path) for path in run.glob("*/rollouts/*/*.jsonl")})
    played = ((path.parts[-4], path.parts[-2], path.stem, record) for path in paths for record in read_records(path))
    evaluated = ((line["stage"], line["split"], "", line) for line in of_evaluation(run))
    for stage, split, step, record in chain(played, evaluated):
        try:
            question = question_of(record["episode"], split)
        except (KeyError, TypeError, AttributeError):
            damaged += 1
            continue
        result, old = reward(**question), record.get("score")
        new = result["score"] if isinstance(result, dict) else result
        for name in (question["data_source"].rpartition("/")[2], "all"):
            column = columns[stage, split, name]
            column.new.append(new)
            column.groups[step, str(record.get("uid"))].add(new)
            if isinstance(old, float | int) and math.isfinite(old):
                column.both.append((old, new))
    if not columns:
        raise PreflightError(f"{run} holds no episodes: expected a run with <stage>/rollouts, or an evaluation")
    if damaged:
        print(f"NOTE {damaged} lines are no whole episode")
    return columns


def table(columns: dict[tuple[str, str, str], Column]) -> str:
    """Old against new as text, a line for each stage, split and category: by name, `all` after its categories.

    The old mean and the correlation are those of the episodes that have an old score.
    """
    lines = [("stage", "split", "category", "episodes", "old mean", "new mean", "correlation", "groups alike")]
    for key, column in sorted(columns.items(), key=lambda item: (*item[0][:2], item[0][2] == "all", item[0][2])):
        try:
            related = f"{correlation(*zip(*column.both, strict=True)):.3f}"
        except (StatisticsError, TypeError):  # one of the two does not vary, or there are fewer than two
            related = "-"
        old = f"{fmean(old for old, _ in column.both):.3f}" if column.both else "-"
        alike = f"{fmean(len(scores) == 1 for scores in column.groups.values()):.0%}" if key[1] == "train" else "-"
        lines.append((*key, str(len(column.new)), old, f"{fmean(column.new):.3f}", related, alike))
    return aligned(lines)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m recipe.rescore", description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("run", type=Path, metavar="RUN_DIR", help="folder of a run, such as outputs/default")
    add("--reward", required=True, help="Python file, or pkg://rewards.progress")
    add("--name", default="compute_score", help="function in that file")
    add("--timeout", type=float, default=300.0, help="seconds that one episode may take")
    add("arguments", nargs="*", type=read_argument, metavar="NAME=VALUE", help="arguments of the reward")
    given = parser.parse_intermixed_args()
    try:
        reward = caller(given.reward, given.name, given.timeout, dict(given.arguments))
        print(table(rescore(given.run, reward)))
    except (PreflightError, RewardError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
