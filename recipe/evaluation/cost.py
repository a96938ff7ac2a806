"""What an evaluation's episodes have cost: a search spends more than the episode that it ends with shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from interaction.record import EpisodeRecord
from recipe.evaluation.store import EPISODES, SettingsError, finished_lines


@dataclass(frozen=True, slots=True)
class Cost:
    """Means over episodes, but for `dropped`."""

    strategy: str
    nodes: float
    """Messages that the model wrote, in all branches."""
    messages: float
    """Those of the episode that is kept."""
    branches: float
    dropped: int
    """Branches of all episodes that gave other results when they were played again."""
    prompt_tokens: float
    """As the server counted them over all requests; and those of the messages."""
    completion_tokens: float

    @property
    def searched(self) -> bool:
        """Whether a search found the episodes."""
        return self.strategy != "cot"

    def __str__(self) -> str:
        spent = f"{self.prompt_tokens:,.0f} + {self.completion_tokens:,.0f} tokens of prompts and messages"
        if not self.searched:
            return f"strategy {self.strategy}: {self.nodes:.1f} messages and {spent} an episode"
        return (
            f"strategy {self.strategy}, a search: {self.nodes:.1f} messages in {self.branches:.1f} branches and "
            f"{spent} an episode, of which {self.messages:.1f} messages are kept; {self.dropped} branches dropped"
        )


def cost(paths: Sequence[Path]) -> Cost | None:
    """Of the finished episodes in these files; None unless all of them are an evaluation's.

    Raises:
        SettingsError: some were found by a search and others were not.
    """
    found: dict[str, list[dict[str, int]]] = {}
    others = [path for path in paths if path.name != EPISODES]
    for path in paths:
        for line, record in finished_lines(path).values() if path not in others else ():
            found.setdefault("dfsdt" if "search" in line else "cot", []).append(_counts(line, record))
    if "dfsdt" in found and (others or "cot" in found):
        raise SettingsError(
            f"{len(found['dfsdt'])} of these episodes were found by a search (--strategy dfsdt) and the others were "
            "not, so one score of both would say nothing: judge the folders of each strategy by themselves"
        )
    if others or not found:
        return None
    ((strategy, rows),) = found.items()
    dropped = sum(row.pop("dropped") for row in rows)
    return Cost(strategy, dropped=dropped, **{name: fmean(row[name] for row in rows) for name in rows[0]})


def _counts(line: Mapping[str, Any], record: EpisodeRecord) -> dict[str, int]:
    """Of one episode, by the names of `Cost`; 0 for what the line does not say."""
    messages = sum(len(turn.steps) for turn in record.turns)
    search = line.get("search", {"nodes": messages, "branches": 1})
    said = {**line, **search} if isinstance(search, dict) else line
    names = ("nodes", "branches", "dropped", "prompt_tokens", "completion_tokens")
    return {"messages": messages} | {name: said[name] if type(said.get(name)) is int else 0 for name in names}
