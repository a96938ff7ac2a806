"""Apply a reward to the episodes that a run has stored, without a model, and compare it with the one they had.

    python -m recipe.rescore RUN_DIR --reward my_reward.py [--name compute_score] [price=0.02 ...]

Trying a reward costs seconds this way instead of a training run: does it rank the episodes as intended, does it give
groups of rollouts a spread that GRPO can learn from, and what earns the most under it?
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from recipe import reward_file
from recipe.errors import PreflightError
from recipe.report import read_records


@dataclass
class Column:
    """Old and new scores of one stage, split and category."""

    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    groups: dict[Any, list[float]] = field(default_factory=lambda: defaultdict(list))
    """New scores by (step, prompt): what GRPO compares with each other."""

    @property
    def without_spread(self) -> float:
        """Share of the groups whose rollouts all score the same, from which GRPO learns nothing."""
        return fmean(float(pstdev(scores) == 0) for scores in self.groups.values())


def rescore(run: Path, reward: Callable[..., Any], arguments: dict[str, Any]) -> dict[tuple[str, str, str], Column]:
    """Score every stored episode again. Keys: (stage, split, category), `all` being all categories together.

    Raises:
        PreflightError: the run holds no episodes, or the reward failed; the message names the episode.
    """
    columns: dict[tuple[str, str, str], Column] = defaultdict(Column)
    for path in sorted(run.glob("*/rollouts/*/*.jsonl")):
        stage, split = path.parts[-4], path.parts[-2]
        for record in read_records(path):
            episode = record["episode"]
            extra_info = {"split": split, "scenario_id": record["scenario_id"], "episode": episode}
            try:
                result = reward(
                    data_source=f"bfcl/{episode['category'].removeprefix('multi_turn_')}",
                    solution_str="".join(step["text"] for turn in episode["turns"] for step in turn["steps"]),
                    ground_truth="[]",
                    extra_info=extra_info,
                    **arguments,
                )
            except Exception as error:
                raise PreflightError(
                    f"the reward failed on {record['scenario_id']} in {path}: {type(error).__name__}: {error}"
                ) from error
            new = float(result["score"] if isinstance(result, dict) else result)
            for category in (episode["category"].removeprefix("multi_turn_"), "all"):
                column = columns[stage, split, category]
                column.old.append(float(record["score"]))
                column.new.append(new)
                column.groups[path.stem, record["uid"]].append(new)
    if not columns:
        raise PreflightError(f"{run} holds no episodes: expected {run}/<stage>/rollouts/<split>/<step>.jsonl")
    return columns


def correlation(first: list[float], second: list[float]) -> float | None:
    """Pearson's correlation; None where one of the two does not vary."""
    spread = pstdev(first) * pstdev(second)
    if spread == 0:
        return None
    a, b = fmean(first), fmean(second)
    return fmean((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / spread


def table(columns: dict[tuple[str, str, str], Column]) -> str:
    """Old against new as text, a line for each stage, split and category."""
    lines = [["stage", "split", "category", "episodes", "old mean", "new mean", "correlation", "groups alike"]]
    for (stage, split, category), column in columns.items():
        related = correlation(column.old, column.new)
        lines.append(
            [
                stage,
                split,
                category,
                str(len(column.new)),
                f"{fmean(column.old):.3f}",
                f"{fmean(column.new):.3f}",
                "-" if related is None else f"{related:.3f}",
                f"{column.without_spread:.0%}" if split == "train" else "-",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    """Entry point of `python -m recipe.rescore`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.rescore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of a run, such as outputs/default")
    parser.add_argument("--reward", required=True, help="Python file, or pkg://rewards.progress")
    parser.add_argument("--name", default="compute_score", help="function in that file")
    parser.add_argument("arguments", nargs="*", type=_argument, metavar="NAME=VALUE", help="arguments of the reward")
    given = parser.parse_intermixed_args()
    try:
        print(table(rescore(given.run, reward_file.load(given.reward, given.name), dict(given.arguments))))
    except (PreflightError, reward_file.RewardFileError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
