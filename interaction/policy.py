"""The turn policy: by which rules a conversation is played. `interaction.train` and `interaction.val` set it by name.

Its values are read strictly wherever it is made: a wrong one is a ValueError that names it.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

MOST = 2**31 - 1


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class TurnPolicy:
    """How many messages a turn may have, how results are shown, and where BFCL's own rules hold."""

    max_steps_per_turn: Annotated[int, Field(ge=1, le=MOST)] = 20
    """The model's messages in one user turn, malformed ones included; BFCL allows 20."""
    max_format_errors_per_turn: Annotated[int, Field(ge=0, le=MOST)] = 3
    """Malformed messages that are forgiven in one turn; one more ends the episode."""
    max_result_chars: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Each result that the model reads is cut here (None: no cut); the record keeps all of it."""
    augment: bool = False
    """The environment's hints."""
    at_step_limit: Literal["end", "official"] = "end"
    """After `max_steps_per_turn` messages "end" judges the turn as it stands, and the episode ends. "official" does as
    BFCL: one message more, after 20 the 21st; then the episode ends, and the turn is judged only if it is the last."""
    empty_gold: Literal["state", "official"] = "state"
    """A turn without gold calls passes if it was answered, changed nothing and called no function that is not there
    ("state"), or whatever happened in it, as in BFCL ("official"). `passed_official` stays as it is."""
    withheld: Literal["refused", "official"] = "refused"
    """A call of a function that is revealed in a later turn is answered as one of an unknown function ("refused"), or
    executed, as BFCL does ("official")."""
