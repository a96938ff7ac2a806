"""How long an episode, and a reply in it, may become."""

from dataclasses import dataclass


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
