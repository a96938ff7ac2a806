"""Stored trajectories, read to be trained on: files in, token ids with masks, steps and rewards out.

There are two forms: episodes that a stage has stored with `interaction.record_tokens=true`, one JSON object a line; and
`trajectories.parquet` of `data_prep --steptool`, texts with a reward a step. A survey reads all of them before a start.
It says what is wrong and what fits, and keeps places, where the training reads again. Nothing here imports torch.
"""

import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NotRequired

from omegaconf import DictConfig
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from interaction.environment import task_key_of, task_name
from interaction.episode_file import Tokens, whole_of
from interaction.record import EpisodeRecord, StopReason, TurnRecord
from interaction.token_rewards import rewards_of
from interaction.trajectory import Trajectory
from interaction.words import wrong_settings
from recipe.files import PreflightError, lines, shown

ROLLOUTS, TRAJECTORIES = ".jsonl", ".parquet"
FORMS = (
    "the episodes of a stage that was played with interaction.record_tokens=true (<stage>/rollouts/train/*.jsonl), or "
    "trajectories.parquet of `python -m data_prep --steptool FILE --out DIR`"
)
MOST_SHOWN = 10
"""Mistakes that a message lists."""
COMPARED = 4
"""Episodes of a file whose tokens are decoded and compared with the texts of its record."""
ANOTHER_MODEL = "another model's tokenizer wrote it. Set MODEL to a model with the same tokenizer"


class Mistake(ValueError):
    """What is wrong with a trajectory: the field, and what was expected of it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trajectory stands."""

    path: Path
    at: int
    """Byte at which its line begins, or its row."""
    name: str
    """For people: `line 3` or `row 3`, both from 1."""

    def __str__(self) -> str:
        return f"{self.path}, {self.name}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One trajectory."""

    group: str
    """Trajectories of one group are attempts at one task, which estimators such as GRPO compare."""
    source: str
    """Data source, such as `bfcl/base`: metrics are logged by it."""
    trajectory: Trajectory
    score: float
    step_scores: list[float] | None
    """One for each step; None where there is the score alone."""
    reward: Mapping[str, float] = field(default_factory=dict)
    """What else the reward returned."""
    truncated: bool = False
    """Whether a token limit cut it, as `interaction.overlong.train=false` asks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one trajectory, in tokens; None for no limit."""

    prompt: int
    response: int
    """From the model's first token to the end, what the environment says included."""
    context: int | None
    """Prompt and response together."""
    reply: int | None
    """Of one step."""
    final_only: bool
    """Whether the reward of the last step alone counts (`offline.rewards=final`)."""

    @classmethod
    def of(cls, config: DictConfig) -> "Limits":
        """Those of a stage's configuration."""
        data, context = config.data, config.actor_rollout_ref.rollout.max_model_len
        reply, final = config.interaction.max_tokens_per_reply, config.offline.rewards == "final"
        return cls(data.max_prompt_length, data.max_response_length, context, reply, final)


# Files.


def found(named: Iterable[str]) -> list[Path]:
    """The files that `offline.files` names, those of a folder by name, each once.

    Raises:
        PreflightError: a name stands for nothing that can be read.
    """
    files: dict[Path, Path] = {}
    for name in named:
        path = Path(os.path.expanduser(name))
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        inside = [item for item in inside if item.is_file() and item.suffix in (ROLLOUTS, TRAJECTORIES)]
        if not inside:
            raise PreflightError(f"offline.files={name} holds nothing to train on; expected {FORMS}.")
        for item in inside:
            files.setdefault(item.resolve(), item)
    return list(files.values())


# Episodes with their tokens.


class _Line(TypedDict):
    """One line of a file, as far as it is read."""

    __pydantic_config__ = ConfigDict(extra="allow", allow_inf_nan=False)  # type: ignore[misc]
    tokens: Tokens
    score: float
    step_scores: NotRequired[list[float] | None]
    reward: NotRequired[dict[str, Any] | None]
    episode: EpisodeRecord


LINE: TypeAdapter[Any] = TypeAdapter(_Line)


def _of_line(text: bytes) -> tuple[dict[str, Any], Stored]:
    """A line and its trajectory. Raises Mistake if it holds no episode with its tokens, or parts that do not fit."""
    try:
        line = LINE.validate_json(text, strict=True)
    except ValidationError as error:
        how = "expected an episode of a stage with interaction.record_tokens=true"
        raise Mistake(f"{wrong_settings(error)[:250]}; {how}") from error
    environment, task = task_key_of(line)
    category = str(line.get("category", "")).removeprefix("multi_turn_")
    told = (line.get("reward") or {}).items()
    uid = line.get("uid")
    return line, Stored(
        group=task_name(environment, str(task)) if uid is None else str(uid),
        source=f"{environment}/{category}" if category else environment,
        trajectory=_trajectory(line["tokens"], line["episode"]),
        score=line["score"],
        step_scores=line.get("step_scores") or None,
        reward={name: value for name, value in told if isinstance(value, int | float) and abs(value) < math.inf},
        truncated=line["episode"].stop_reason == StopReason.max_tokens,
    )


def _trajectory(tokens: Tokens, episode: EpisodeRecord) -> Trajectory:
    response, mask, log_probs = tokens["response"], tokens["mask"], tokens["logprobs"]
    for name, values in (("mask", mask), ("logprobs", log_probs)):
        if values is not None and len(values) != len(response):
            raise Mistake(f"tokens.{name}: has {len(values)} items; expected one a token, {len(response)}")
    made, end = Trajectory(tokens["prompt"]), 0
    steps = ((turn, step.tokens or (0, 0)) for turn, one in enumerate(episode.turns) for step in one.steps)
    for turn, (start, stop) in steps:
        where = f"step {len(made.spans)} of the episode, tokens"
        if not end <= start < stop <= len(response):
            raise Mistake(f"{where}: is {start}, {stop}; expected a place after {end}, up to {len(response)}")
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


# Texts with a reward a step. Each text is tokenised on its own, so ids do not depend on what stands beside it.


@lru_cache(maxsize=64)
def _table(path: Path) -> Any:
    """The file. Raises Mistake if it has not the columns of TRAJECTORY_SCHEMA."""
    import pyarrow as pa  # here, because settings are looked at without it
    import pyarrow.parquet as parquet

    from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA

    try:
        table = parquet.read_table(path)
        return table.select(TRAJECTORY_SCHEMA.names).cast(TRAJECTORY_SCHEMA)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise Mistake(f"cannot be read as parquet: {shown(str(error), quote=False)}; expected {FORMS}") from error


def _of_row(row: Mapping[str, Any], tokenizer: Any) -> Stored:
    """The trajectory of a row. Raises Mistake if it has no steps, an empty text, or a reward that is not finite."""
    from data_prep.steptool.lengths import token_ids

    steps = row["steps"]
    if not steps or row["query_id"] is None:
        raise Mistake("steps, query_id: one is empty")
    ids = token_ids([step[name] or "" for step in steps for name in ("prompt", "response")], tokenizer)
    for number, tokens in enumerate(ids):
        if not tokens:
            raise Mistake(f"steps[{number // 2}].{('prompt', 'response')[number % 2]}: has no token")
    scores = [math.nan if step["reward"] is None else step["reward"] for step in steps]
    if not all(map(math.isfinite, scores)):
        raise Mistake(f"steps.reward: is {scores}; expected finite numbers")
    trajectory = Trajectory(ids[0])
    for number, (prompt, response) in enumerate(zip(ids[::2], ids[1::2], strict=True)):
        if number:
            trajectory.add_context(prompt)
        trajectory.add_step(0, response, None)
    return Stored(row["query_id"], "steptool", trajectory, sum(scores), scores)


# What of it is trained on.


def cut(stored: Stored, limits: Limits) -> Stored | None:
    """The trajectory as it is trained on; None where nothing of it can be.

    A step that was half seen has a reward that its tokens did not earn, so steps are dropped whole, from the end. A
    single score is for the whole trajectory, which then is left out. What the environment said last goes too.
    """
    trajectory, scores = stored.trajectory, stored.step_scores
    prompt, whole = len(trajectory.prompt), len(trajectory.spans)
    most = limits.response if limits.context is None else min(limits.response, limits.context - prompt)
    reply = math.inf if limits.reply is None else limits.reply
    fits = [span.end <= most and span.end - span.start <= reply for span in trajectory.spans]
    steps = [*fits, False].index(False) if prompt <= limits.prompt else 0
    if not steps or (steps < whole and (scores is None or limits.final_only)):
        return None
    if scores is not None:
        scores = [0.0] * (whole - 1) + scores[-1:] if limits.final_only else scores[:steps]
    score = stored.score if scores is None else sum(scores)
    end, kept = trajectory.spans[steps - 1].end, Trajectory(trajectory.prompt)
    kept.response, kept.mask, kept.spans = trajectory.response[:end], trajectory.mask[:end], trajectory.spans[:steps]
    kept.log_probs = None if trajectory.log_probs is None else trajectory.log_probs[:end]
    return replace(stored, trajectory=kept, step_scores=scores, score=score)


def read(place: Place, limits: Limits, tokenizer: Any) -> Stored:
    """A trajectory that a survey has kept, as it is trained on.

    Raises:
        Mistake: the file is another one by now.
    """
    if place.path.suffix == ROLLOUTS:
        with place.path.open("rb") as file:
            file.seek(place.at)
            stored = _of_line(file.readline())[1]
    else:
        stored = _of_row(_table(place.path).slice(place.at, 1).to_pylist()[0], tokenizer)
    if (kept := cut(stored, limits)) is None:
        raise Mistake("has changed since the start")
    return kept


# The survey.


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

    def items(self, grouped: bool) -> list[list[Place]]:
        """What stands in for a row of a stage that plays: a group with two trajectories or more, or one trajectory."""
        if grouped:
            return [places for places in self.groups.values() if len(places) > 1]
        return [[place] for places in self.groups.values() for place in places]

    def digest(self, grouped: bool) -> str:
        """Of where each row stands, in order, wherever the files are."""
        places = "\n".join(" ".join(f"{place.path.name}:{place.at}" for place in row) for row in self.items(grouped))
        return hashlib.sha256(places.encode()).hexdigest()


def survey(files: Sequence[Path], limits: Limits, tokenizer: Any, known: int) -> Survey:
    """Look at every trajectory of these files.

    Of a step that was played again after a resume, the episodes of the later launch are kept. A stage that plays on
    while it trains plays what was unfinished again under the same name in a later step's file: the first one is kept.

    Args:
        tokenizer: of the model to train.
        known: ids below this one are the tokenizer's, and have an embedding.
    """
    result, seen = Survey(), dict[str, tuple[str, Place]]()
    for path, parts in groupby(files, lambda path: whole_of(path) if path.suffix == ROLLOUTS else path):
        last, kept, compared = dict[str, str](), dict[str, tuple[str, str, Any]](), 0
        for place, content in _entries(path, parts, result):
            result.counts["read"] += 1
            step = launch = ""
            name = str(place)
            try:
                if path.suffix == TRAJECTORIES:
                    stored = _of_row(content, tokenizer)
                else:
                    line, stored = _of_line(content)
                    step, launch = str(line.get("step")), str(line.get("launch"))
                    name = f"{line.get('uid')}/{line.get('session_id')}"
                    if name in seen:
                        if seen[name][0] == launch:
                            raise Mistake(f"uid, session_id: the same episode stands at {seen[name][1]}")
                        result.counts["earlier"] += 1
                        if name not in kept:
                            continue
                    if compared < COMPARED:
                        _check_texts(stored.trajectory, line["episode"].turns, tokenizer)
                        compared += 1
                seen[name], last[step] = (launch, place), launch
                if (trained := _look(stored, result, limits, known)) is not None:
                    dropped = len(stored.trajectory.spans) - len(trained.spans)
                    item = stored.group, place, dropped, trained.log_probs is not None, len(trained.ids)
                    kept[name] = step, launch, item
            except Mistake as error:
                result.mistakes.append(f"{place}, {error}")
        for step, launch, (group, place, dropped, log_probs, tokens) in kept.values():
            if launch == last[step]:
                result.groups[group].append(place)
                result.longest = max(result.longest, tokens)
                result.counts.update(trained=1, shortened=bool(dropped), steps_dropped=dropped, log_probs=log_probs)
            else:
                result.counts["earlier"] += 1
    return result


def _entries(path: Path, parts: Iterable[Path], result: Survey) -> Iterator[tuple[Place, Any]]:
    """The rows of a file, or the lines of its parts."""
    if path.suffix == ROLLOUTS:
        for part in parts:
            for number, (at, text) in enumerate(lines(part), 1):
                if text.strip():
                    yield Place(part, at, f"line {number}"), text
        return
    try:
        batches = _table(path).to_batches(max_chunksize=256)
    except Mistake as error:
        result.mistakes.append(f"{path}, {error}")
        return
    for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
        yield Place(path, number, f"row {number + 1}"), row


def _look(stored: Stored, result: Survey, limits: Limits, known: int) -> Trajectory | None:
    """What is trained on; None, and counted, where nothing of it can be. Raises Mistake."""
    spans, mask = stored.trajectory.spans, stored.trajectory.mask
    try:
        rewards_of(stored.score, stored.step_scores, steps=len(spans), spans=spans, mask=mask)
    except ValueError as error:
        raise Mistake(f"score, step_scores: {error}") from error
    if unknown := [token for token in stored.trajectory.ids if not 0 <= token < known]:
        raise Mistake(f"tokens: holds the id {unknown[0]}, and the model knows those below {known}: {ANOTHER_MODEL}")
    if (kept := cut(stored, limits)) is None:
        result.counts["too_long" if spans else "silent"] += 1
        return None
    return kept.trajectory


def _check_texts(trajectory: Trajectory, turns: Sequence[TurnRecord], tokenizer: Any) -> None:
    """The ids read as the record says that the model wrote. Raises Mistake."""
    texts = [step.text for turn in turns for step in turn.steps]
    for number, (span, text) in enumerate(zip(trajectory.spans, texts, strict=True)):
        read_as = tokenizer.decode(trajectory.response[span.start : span.end], skip_special_tokens=True)
        if not text.startswith(read_as):  # its last tokens may be the environment's (`Trajectory.go_on`)
            said = f"step {number} reads {shown(read_as)}, and the record says {shown(text)}"
            raise Mistake(f"tokens: {said}: {ANOTHER_MODEL}")
