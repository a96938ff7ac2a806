"""All stored trajectories, looked at once before they are trained on: what is wrong, what fits, which belong together.

What is kept of a trajectory is its place; whoever trains on it reads it again there, so that a run of production size
needs no more memory than its batches do.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from interaction.episode_file import whole_of
from interaction.trajectory import Trajectory
from recipe.files import Damaged
from recipe.offline import rollouts, steptool
from recipe.offline.files import ROLLOUTS
from recipe.offline.limits import Limits, cut
from recipe.offline.stored import Mistake, Place, Stored, check_rewards
from recipe.typed import shown

MOST_SHOWN = 10
"""Mistakes that a message lists."""

COMPARED = 4
"""Episodes of a file whose tokens are decoded and compared with the texts of its record."""

ANOTHER_TOKENIZER = "another model's tokenizer wrote it. Set MODEL to a model with the same tokenizer"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the model to train reads."""

    tokenizer: Any
    size: int
    """Ids from 0 to below this one are the tokenizer's, and have an embedding."""
    model: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is noted of a trajectory that is trained on."""

    group: str
    place: Place
    dropped: int
    """Steps."""
    log_probs: bool
    tokens: int


@dataclass
class Survey:
    """What was found."""

    groups: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))
    """Trajectories that are trained on, in the order of the files."""
    mistakes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """`read`; `trained`, and of these `shortened`, by `steps_dropped`, and `log_probs` that were stored; left out:
    `too_long`, `earlier` (a resumed step was played again), `silent` (not a token of the model)."""
    longest: int = 0
    """Tokens of the longest one that is trained on."""

    def add(self, kept: Iterable[_Kept]) -> None:
        """Count trajectories among those that are trained on."""
        for item in kept:
            self.groups[item.group].append(item.place)
            self.counts.update(trained=1, shortened=bool(item.dropped), steps_dropped=item.dropped)
            self.counts["log_probs"] += item.log_probs
            self.longest = max(self.longest, item.tokens)

    def items(self, grouped: bool) -> list[list[Place]]:
        """What stands in for a row of a stage that plays: a group with two trajectories or more, or one trajectory."""
        if grouped:
            return [places for places in self.groups.values() if len(places) > 1]
        return [[place] for places in self.groups.values() for place in places]

    def digest(self, grouped: bool) -> str:
        """Of where each row stands, in order, wherever the files are."""
        places = "\n".join(" ".join(f"{place.path.name}:{place.at}" for place in row) for row in self.items(grouped))
        return hashlib.sha256(places.encode()).hexdigest()

    @property
    def largest_group(self) -> int:
        return max(map(len, self.groups.values()), default=0)

    @property
    def lone(self) -> int:
        """Trajectories that have nothing to be compared with."""
        return sum(len(places) == 1 for places in self.groups.values())


def survey(files: Sequence[Path], limits: Limits, vocabulary: Vocabulary) -> Survey:
    """Look at every trajectory of these files."""
    found = Survey()
    seen: dict[str, tuple[str, Place]] = {}
    for path, parts in groupby(files, lambda path: whole_of(path) if path.suffix == ROLLOUTS else path):
        look = partial(_look, found=found, limits=limits, vocabulary=vocabulary)
        try:
            if path.suffix == ROLLOUTS:
                found.add(_episodes(parts, found, look, seen))
            else:
                found.add(_rows(path, found, look, vocabulary))
        except Damaged as error:
            found.mistakes.append(str(error))
    return found


def read(place: Place, limits: Limits, tokenizer: Any) -> Stored:
    """A trajectory that a survey has kept, as it is trained on.

    Raises:
        Mistake: the file is another one by now.
        Damaged: the same, or it is gone.
    """
    if place.path.suffix == ROLLOUTS:
        stored: Stored | None = rollouts.read_line(place)
    else:
        stored = steptool.read_row(place, tokenizer)
    assert stored is not None
    if (stored := cut(stored, limits)) is None:
        raise Mistake("has changed since the start")
    return stored


def _episodes(
    parts: Iterable[Path], found: Survey, look: Callable[..., _Kept | None], seen: dict[str, tuple[str, Place]]
) -> Iterator[_Kept]:
    """Those of a file of rollouts; of a step that was played again after a resume, those of the later launch.

    A stage that plays on while it trains plays what was unfinished at a checkpoint again in the next launch, under the
    same name in a later step's file. Of two such episodes the first is kept.
    """
    last: dict[str, str] = {}
    kept: dict[str, tuple[str, str, _Kept]] = {}
    compared = 0
    for line in (line for path in parts for line in rollouts.read_lines(path)):
        found.counts["read"] += 1
        try:
            stored = rollouts.stored_of(line.content)
            step, launch, name = rollouts.attempt(line.content)
            if name in seen:
                if seen[name][0] == launch:
                    raise Mistake(f"uid, session_id: the same episode stands at {seen[name][1]}")
                found.counts["earlier"] += 1
                if name not in kept:
                    continue
            seen[name] = launch, line.place
            texts = rollouts.texts_of(line.content) if compared < COMPARED else None
            compared += 1
            last[step] = launch
            if (item := look(line.place, stored, texts=texts)) is not None:
                kept[name] = step, launch, item
        except Mistake as error:
            found.mistakes.append(f"{line.place}, {error}")
    for step, launch, item in kept.values():
        if launch == last[step]:
            yield item
        else:
            found.counts["earlier"] += 1


def _rows(path: Path, found: Survey, look: Callable[..., _Kept | None], vocabulary: Vocabulary) -> Iterator[_Kept]:
    for place, row in steptool.read_rows(path):
        found.counts["read"] += 1
        try:
            if (item := look(place, steptool.stored_of(row, vocabulary.tokenizer))) is not None:
                yield item
        except Mistake as error:
            found.mistakes.append(f"{place}, {error}")


def _look(
    place: Place,
    stored: Stored,
    *,
    found: Survey,
    limits: Limits,
    vocabulary: Vocabulary,
    texts: list[str] | None = None,
) -> _Kept | None:
    """What is kept of a trajectory; None, and counted, where nothing of it can be trained on.

    Args:
        texts: what the model wrote, to be compared with the ids; None compares nothing.

    Raises:
        Mistake: it is wrong.
    """
    trajectory = stored.trajectory
    check_rewards(stored)
    if (largest := max(trajectory.ids)) >= vocabulary.size:
        raise Mistake(
            f"tokens: holds the id {largest}, and {vocabulary.model} knows those below {vocabulary.size}: "
            f"{ANOTHER_TOKENIZER}"
        )
    if texts is not None:
        _check_texts(trajectory, texts, vocabulary)
    if not trajectory.spans:
        found.counts["silent"] += 1
        return None
    if (kept := cut(stored, limits)) is None:
        found.counts["too_long"] += 1
        return None
    dropped = len(trajectory.spans) - len(kept.trajectory.spans)
    return _Kept(stored.group, place, dropped, kept.trajectory.log_probs is not None, len(kept.trajectory.ids))


def _check_texts(trajectory: Trajectory, texts: list[str], vocabulary: Vocabulary) -> None:
    """The ids read as the record says that the model wrote.

    Raises:
        Mistake: they do not.
    """
    for number, (span, text) in enumerate(zip(trajectory.spans, texts, strict=True)):
        read_as = vocabulary.tokenizer.decode(trajectory.response[span.start : span.end], skip_special_tokens=True)
        if not text.startswith(read_as):  # its last tokens may be the environment's (`Trajectory.go_on`)
            raise Mistake(
                f"tokens: step {number} reads {shown(read_as)} with the tokenizer of {vocabulary.model}, and the "
                f"record says {shown(text)}: {ANOTHER_TOKENIZER}"
            )
