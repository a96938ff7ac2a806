"""One played episode as verl stores it: token ids, mask, rewards on tokens; and as a line of a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from interaction.episode_file import Tokens, append
from interaction.token_rewards import Rewards, Span, number_tokens, rewards_of, steps_of


@dataclass(slots=True)
class Clock:
    """Where the time of one episode goes; runs from the moment it is made, over all attempts at the episode.

    Waiting in a queue counts for what was waited for: the engine, the one thread of all environments, a user model's
    free connection. So the seconds of many episodes add up to far more than the step that played them.
    """

    generate: float = 0.0
    environment: float = 0.0
    """Opening it, parsing, calls, judging."""
    user: float = 0.0
    _began: float = field(default_factory=perf_counter)
    _played: float | None = None

    @contextmanager
    def waiting(self, cause: Literal["generate", "environment", "user"]) -> Iterator[None]:
        """Counts the seconds within."""
        began = perf_counter()
        try:
            yield
        finally:
            setattr(self, cause, getattr(self, cause) + perf_counter() - began)

    def stop(self) -> None:
        """The last word was said; from now on it waits for its reward."""
        self._played = perf_counter()

    def seconds(self) -> dict[str, float]:
        """By cause, `reward`, and `total`, which is more than their sum: tokens are encoded, events wait."""
        now = perf_counter()
        parts = {"generate": self.generate, "environment": self.environment, "user": self.user}
        parts["reward"] = 0.0 if self._played is None else now - self._played
        return {name: round(value, 4) for name, value in {**parts, "total": now - self._began}.items()}


class EpisodeOutput(AgentLoopOutput):
    """One trajectory with its record. The record goes to the reward and to a file, not into TransferQueue.

    The fields of its own are not among those that verl stores.
    """

    record_file: Path | None = Field(None, exclude=True)
    """JSONL file to which the scored record is appended; None writes nothing."""
    record_header: dict[str, Any] = Field({}, exclude=True)
    """Fields of the JSONL line beside score and episode: step, split, uid, ..."""
    clock: Clock | None = Field(None, exclude=True)
    """Where its time went; None for one that was not played."""
    record_tokens: bool = Field(False, exclude=True)
    """Whether the line has the token ids, as `interaction.record_tokens` says."""
    spans: list[Span] = Field([], exclude=True)
    """The model's steps among the tokens of the response, in order."""
    overlong_penalty: float | None = Field(None, exclude=True)
    """What the length costs (`interaction.overlong`), taken from the score and logged; None where that is off."""

    def as_dict(self) -> dict[str, Any]:
        """verl's form of the trajectory. verl calls this once, after the reward; it also writes the episode's line.

        Raises:
            ValueError: the score is not finite or the reward's `step_scores` are wrong. verl then counts the prompt as
                failed, and the sample is lost.
        """
        fields = super().as_dict()
        if self.clock is not None:
            fields["extra_fields"]["seconds"] = self.record_header["seconds"] = self.clock.seconds()
        rewards = self._put_rewards(fields)
        episode = self.extra_fields.get("episode")
        if self.record_file is not None and episode is not None:
            reward = fields["extra_fields"].get("reward_extra_info", {})
            numbers = {name: value for name, value in reward.items() if isinstance(value, int | float)}
            line = {**self.record_header, "score": rewards.score, "reward": numbers, "episode": episode}
            if rewards.step_scores is not None:
                line["step_scores"] = rewards.step_scores
            if self.record_tokens:
                line["tokens"] = Tokens(
                    prompt=self.prompt_ids,
                    response=self.response_ids,
                    mask=self.response_mask,
                    logprobs=self.response_logprobs,
                )
            append(self.record_file, line)
        return fields

    def _put_rewards(self, fields: dict[str, Any]) -> Rewards:
        """Put the reward on tokens (`rm_scores`) and into verl's metrics; two columns say which step (`step_ids`) and
        which user turn (`turn_ids`) a token belongs to, -1 for the environment's."""
        extra = fields["extra_fields"]
        episode = extra.pop("episode", None)
        step_scores = extra.get("reward_extra_info", {}).pop("step_scores", None)  # verl's metrics expect numbers
        rewards = rewards_of(
            self.reward_score,
            step_scores,
            steps=len(self.spans) if episode is None else steps_of(episode),
            spans=self.spans,
            mask=self.response_mask,
            penalty=self.overlong_penalty,
        )
        logged: dict[str, Any] = {}
        if "part" in self.record_header:  # for a trainer that tells held-out tasks apart; verl skips texts
            logged["part"] = self.record_header["part"]
        if "given_turns" in self.record_header:
            logged["given_turns"] = self.record_header["given_turns"]
        if rewards.tokens is not None and self.overlong_penalty is not None:
            logged["overlong_penalty"] = self.overlong_penalty
        if logged:
            extra.setdefault("reward_extra_info", {}).update(logged)
        if self.spans:
            fields["step_ids"], fields["turn_ids"] = map(torch.tensor, number_tokens(self.spans, self.response_mask))
        if rewards.tokens is not None:
            fields["rm_scores"] = torch.tensor(rewards.tokens, dtype=torch.float32)
        return rewards
