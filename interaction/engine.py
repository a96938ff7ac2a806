"""What an episode may ask of the inference engine, and what counts as the engine's fault: that is played again."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of an episode, read once: OmegaConf is slow, and the event loop would ask it several times a step."""

    response: int
    context: int | None
    """Of prompt and response together; None: no limit."""
    reply: int | None
    seconds: float
    """For one reply."""

    def room(self, prompt: int, response: int) -> int:
        """Tokens that still fit into the response budget and into the model's context."""
        room = self.response - response
        return room if self.context is None else min(room, self.context - prompt - response)


class EngineFault(RuntimeError):
    """The inference engine failed or returned what no model can have said; not the model's doing."""


def require_sound(out: Any, last_id: int, max_tokens: int) -> None:
    """Raises EngineFault for a reply that no working engine gives: trained on, it would break the update.

    The ids that a padded embedding has beyond the tokenizer's are refused too. No text stands for them, a trained
    model gives them a probability near 0, and the episode is only played again.

    Args:
        out: verl's TokenOutput.
        last_id: largest id of the tokenizer.
        max_tokens: how many were asked for.
    """
    ids, log_probs = out.token_ids, out.log_probs
    if not ids:
        raise EngineFault(f"no tokens returned (stop_reason={out.stop_reason})")
    if out.stop_reason == "aborted":
        raise EngineFault(f"aborted after {len(ids)} tokens")
    if len(ids) > max_tokens:
        raise EngineFault(f"{len(ids)} tokens returned, at most {max_tokens} asked for")
    if min(ids) < 0 or max(ids) > last_id:
        raise EngineFault(f"token ids from {min(ids)} to {max(ids)} returned; the tokenizer has 0 to {last_id}")
    if log_probs is not None and len(log_probs) != len(ids):
        raise EngineFault(f"{len(log_probs)} log-probabilities returned for {len(ids)} tokens")
