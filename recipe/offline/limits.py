"""What of a trajectory is trained on: as many whole steps as fit, and which of their rewards.

A step that was half seen has a reward that its tokens did not earn, so none is cut. Where each step has a reward of its
own, steps are dropped from the end; a single score is for the whole trajectory, which then is left out.
"""

from dataclasses import dataclass, replace

from omegaconf import DictConfig

from interaction.trajectory import Trajectory
from recipe.offline.stored import Stored


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one trajectory, in tokens; None for no limit."""

    prompt: int
    """Before the model's first token."""
    response: int
    """From there to its end, what the environment says included."""
    context: int | None
    """Of both together."""
    reply: int | None
    """Of one step."""
    final_only: bool
    """Whether the reward of the last step alone counts (`offline.rewards=final`)."""

    @classmethod
    def of(cls, config: DictConfig) -> "Limits":
        """Those of a stage's configuration."""
        return cls(
            config.data.max_prompt_length,
            config.data.max_response_length,
            config.actor_rollout_ref.rollout.max_model_len,
            config.interaction.max_tokens_per_reply,
            config.offline.rewards == "final",
        )


def fitting_steps(trajectory: Trajectory, limits: Limits) -> int:
    """How many of its first steps fit."""
    prompt = len(trajectory.prompt)
    if prompt > limits.prompt:
        return 0
    for number, span in enumerate(trajectory.spans):
        too_long = span.end > limits.response or (limits.context is not None and prompt + span.end > limits.context)
        if too_long or (limits.reply is not None and span.end - span.start > limits.reply):
            return number
    return len(trajectory.spans)


def cut(stored: Stored, limits: Limits) -> Stored | None:
    """The trajectory as it is trained on; None where nothing of it can be.

    What the environment said after the last step goes too: nothing is learned there.
    """
    trajectory, scores = stored.trajectory, stored.step_scores
    steps, whole = fitting_steps(trajectory, limits), len(trajectory.spans)
    if not steps or (steps < whole and (scores is None or limits.final_only)):
        return None
    if scores is not None and limits.final_only:
        scores = [0.0] * (whole - 1) + scores[-1:]
    if steps < whole and scores is not None:
        scores = scores[:steps]
    score = stored.score if scores is stored.step_scores or scores is None else sum(scores)
    return replace(stored, trajectory=_first_steps(trajectory, steps), step_scores=scores, score=score)


def _first_steps(trajectory: Trajectory, steps: int) -> Trajectory:
    end = trajectory.spans[steps - 1].end
    if end == len(trajectory):
        return trajectory
    kept = Trajectory(trajectory.prompt)
    kept.response, kept.mask, kept.spans = trajectory.response[:end], trajectory.mask[:end], trajectory.spans[:steps]
    kept.log_probs = None if trajectory.log_probs is None else trajectory.log_probs[:end]
    return kept
