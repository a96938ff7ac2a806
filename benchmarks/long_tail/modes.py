"""The steps of a training, as verl's trainers take them: which groups are played when, and trained on when.

`trainer=sync` is `trainer=async` without batches in play beside the one that is waited for, of which none may be
older than the policy: a batch is handed out, and waited for as a whole. With `trainer=separate` the engines play on
while others train, and are interrupted only for the new weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.long_tail.engines import Engine, hand_out
from benchmarks.long_tail.load import Load


@dataclass(frozen=True)
class Mode:
    """How far playing may be ahead of training.

    Raises:
        ValueError: a number that cannot be; the message names its option.
    """

    name: str
    warmup: int
    """Batches in play beside the one that is waited for (`num_warmup_batches`)."""
    threshold: int
    """Steps, counted from 1, after which a group is waited for (`max_off_policy_threshold`, strategy wait)."""
    beside: bool = False
    """Whether the engines play during log-probabilities and update, on devices of their own."""

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"--warmup {self.warmup}: expected a whole number from 0")
        if self.threshold <= self.warmup:
            raise ValueError(
                f"--threshold {self.threshold} with --warmup {self.warmup}: a group is trained on in step "
                f"{self.warmup + 1} on average, counted from that of its prompt, so nothing could keep it under the "
                f"threshold. Set --threshold to {self.warmup + 1} or more."
            )


Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
SYNC = Mode("sync", 0, 1)


@dataclass(frozen=True)
class Step:
    """A training step that was simulated."""

    rollout: float
    """Seconds until the step's groups were there."""
    playing: float
    """Seconds for which the engines played: the same, or until they got the next weights."""
    written: float
    """Tokens that they wrote meanwhile."""
    trained: Whole
    """Groups it was trained on, by number, in the order in which they were handed out."""
    staleness: Whole
    """Of each the steps since its prompt was handed out."""


def simulate(load: Load, mode: Mode, steps: int, seed: int) -> list[Step]:
    """So many steps of a training from its start."""
    waits = load.waits(mode.warmup + steps, seed)
    before, between = (seconds.reshape(-1).tolist() for seconds in load.spread(waits))
    engines = [Engine(load, before, between) for _ in range(load.replicas)]
    over = np.full(waits.shape, np.inf)
    trained = np.zeros(len(waits), bool)
    handed = np.concatenate([np.ones(mode.warmup, int), np.arange(1, steps + 1)]).repeat(load.prompts)
    out, now, given = [], 0.0, 0
    for step in range(1, steps + 1):
        for engine in engines:
            engine.resume(now)
        before, given = given, (mode.warmup + step) * load.prompts
        hand_out(engines, range(before * load.rollouts, given * load.rollouts))
        written = sum(engine.written for engine in engines)
        playing = np.flatnonzero(~trained[:given])
        awaited = handed[playing] <= step + 1 - mode.threshold
        engines, end = _play(engines, over, playing, awaited, now)
        chosen = playing[over[playing].max(1) <= end][: load.prompts]
        trained[chosen] = True
        if mode.beside:
            _advance(engines, until := end + load.log_probs + load.update, over)
        else:
            until = end
        written = sum(engine.written for engine in engines) - written
        out.append(Step(end - now, until - now, written, chosen, step - handed[chosen]))
        now = end + load.pause
    return out


def _play(
    engines: list[Engine], over: Floats, playing: Whole, awaited: NDArray[np.bool_], now: float
) -> tuple[list[Engine], float]:
    """Until a batch of groups is finished, and those that have reached the threshold are.

    That point in time is known only when it has passed. So the engines play for a while, and when it turns out to have
    lain within, once more to it.

    Args:
        over: when each episode is over, (groups, rollouts); inf where that is not known. Is filled in.

    Returns:
        The engines at the end, and the end.
    """
    load = engines[0].load
    alone = load.messages * (load.tokens / load.tokens_a_second_alone + load.environment) + load.user_median
    until = now
    while True:
        earlier = [engine.snapshot() for engine in engines]
        known = over.copy()
        _advance(engines, until, known)
        finished = known[playing].max(1)
        enough = np.partition(finished, load.prompts - 1)[load.prompts - 1]
        end = float(max(now, enough, finished[awaited].max(initial=now)))
        if end <= until:
            _advance(earlier, end, over)
            return earlier, end
        over[:] = known
        until += max(alone, until - now) / 8


def _advance(engines: list[Engine], until: float, over: Floats) -> None:
    flat = over.reshape(-1)
    for engine in engines:
        for episode, when in engine.advance(until):
            flat[episode] = when
