"""What a training step has to do, in numbers of the user's: engines, episodes, users, and the trainer's seconds."""

from dataclasses import dataclass, fields, replace
from math import inf, isfinite, log

import numpy as np
from numpy.typing import NDArray

SCORE = 2.3263478740408408
"""The 99th percentile of the standard normal distribution."""
MOST = 1_000_000
"""Of whatever is counted."""
MOST_EPISODES = 10_000_000
"""In play or trained on in a simulation: what fits into a gigabyte."""


@dataclass(frozen=True)
class Load:
    """A training step and the machine it runs on. Seconds, tokens, and tokens a second.

    Raises:
        ValueError: a number that cannot be; the message names its option.
    """

    replicas: int
    """Engines, each of which may be several GPUs."""
    concurrency: int
    """Messages that an engine writes at a time: `max_num_seqs`, or what its KV cache holds. Others wait for a place."""
    tokens_a_second: float
    """Of one engine at full load, over all its messages."""
    tokens_a_second_alone: float
    """Of a message that has an engine for itself."""
    messages: int
    """Of the model, in an episode."""
    tokens: float
    """In a message."""
    user_median: float
    """Seconds for which an episode waits for its user in all, the same after each message. Log-normal."""
    prompts: int
    """Groups of a training step (`data.train_batch_size`)."""
    rollouts: int
    """Episodes of a group (`rollout.n`)."""
    log_probs: float
    """Seconds for old and reference log-probabilities of a batch."""
    update: float
    """Seconds for the update of a batch."""
    weights: float
    """Seconds for putting the engines to sleep, waking them, and giving them the new weights."""
    user_p99: float = inf
    """The 99th percentile of the same; without it ten times the median."""
    environment: float = 0.0
    """Seconds for the call that follows each message."""
    reading: float = 0.0
    """Seconds for which an engine reads an episode's tokens again that it had read before it was interrupted."""

    def __post_init__(self) -> None:
        if self.user_p99 == inf:
            object.__setattr__(self, "user_p99", 10 * self.user_median)
        for field in fields(self):
            value = getattr(self, field.name)
            least, most = (1, MOST) if field.type is int else (0, inf)
            positive = field.name.startswith("tokens")
            if not (isfinite(value) and least <= value <= most) or (positive and value == 0):
                expected = f"from 1 to {MOST:,}" if least else "above 0" if positive else "of at least 0"
                raise ValueError(f"{option(field.name)} {value}: expected a finite number {expected}")
        if self.tokens_a_second_alone > self.tokens_a_second:
            raise ValueError(
                f"--tokens-a-second-alone {self.tokens_a_second_alone}: one message cannot be faster than an engine at "
                f"full load, --tokens-a-second {self.tokens_a_second}"
            )
        if self.user_p99 < self.user_median:
            raise ValueError(f"--user-p99 {self.user_p99}: expected no less than --user-median {self.user_median}")

    @property
    def pause(self) -> float:
        """Seconds of a step in which the engines write nothing."""
        return self.log_probs + self.update + self.weights

    def apart(self, share: float) -> "Load":
        """The same with this share of the devices for engines, and the others for training, which takes the longer."""
        playing = min(max(1, round(share * self.replicas)), self.replicas - 1)
        longer = self.replicas / (self.replicas - playing)
        return replace(self, replicas=playing, log_probs=longer * self.log_probs, update=longer * self.update)

    def waits(self, batches: int, seed: int) -> NDArray[np.float64]:
        """How long each episode waits for its user, in seconds; (batches x prompts, rollouts).

        The first batches are the same however many follow.
        """
        groups = batches * self.prompts
        if groups * self.rollouts > MOST_EPISODES:
            raise ValueError(
                f"{groups * self.rollouts:,} episodes are more than {MOST_EPISODES:,}: lower --steps, --prompts or "
                "--rollouts"
            )
        if self.user_median == 0:
            return np.zeros((groups, self.rollouts))
        sigma = log(self.user_p99 / self.user_median) / SCORE
        draws = np.random.default_rng(seed).standard_normal((groups, self.rollouts))
        return self.user_median * np.exp(sigma * draws)

    def spread(self, waits: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each episode the seconds before its first message, and those that follow each message."""
        return np.zeros_like(waits), waits / self.messages + self.environment


def option(name: str) -> str:
    """As it is written on the command line."""
    return "--" + name.replace("_", "-")
