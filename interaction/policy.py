"""The turn policy: by which rules a conversation is played. `interaction.train` and `interaction.val` set it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from interaction.boundary import CALL_SECONDS
from interaction.words import wrong_settings

MOST = 2**31 - 1


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class FromGold:
    """Training episodes begin where gold has come: a horizon that grows from the end (TCOD, arXiv 2604.24005)."""

    share: Annotated[float, Field(gt=0, le=1, strict=True)]
    """Of a task's turns that gold plays in the first step of a stage."""
    steps: Annotated[int, Field(ge=1, le=MOST, strict=True)]
    """After so many steps the model plays them all; until then gold's share shrinks by the same amount a step."""


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class TurnPolicy:
    """How many messages a turn may have, how results are shown, and the settings of the environments."""

    max_steps_per_turn: Annotated[int, Field(ge=1, le=MOST)] = 20
    """The model's messages in one user turn, malformed ones included; BFCL allows 20."""
    max_steps: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """The model's messages in the whole episode (None: no limit but those of its turns); tau allows 30."""
    max_messages: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Messages of model, user and tools in the whole episode, as tau2-bench counts them; it allows 200."""
    calls_per_message: Literal["all", "first"] = "all"
    """Of several calls in one message, run all, or run the first and count the message as malformed."""
    max_format_errors_per_turn: Annotated[int, Field(ge=0, le=MOST)] = 3
    """Malformed messages that are forgiven in one turn; one more ends the episode."""
    max_result_chars: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Each result that the model reads is cut here (None: no cut); the record keeps all of it."""
    call_timeout: Annotated[float, Field(gt=0, le=MOST)] = CALL_SECONDS
    """Seconds for one call of a user's environment; then the episode ends with `environment_error`."""
    from_gold: FromGold | None = None
    """In training, how many first turns gold plays; None: none. Those who play with a model read it, a conversation
    does not."""
    environments: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings that only one environment has, by its name; it checks them (`Options` of its package)."""


TURNS = tuple(name for name in TurnPolicy.__dataclass_fields__ if name not in ("environments", "from_gold"))
"""The settings of turns in any play; `environments` has those of environments."""


def read_policy(given: Mapping[str, Any]) -> TurnPolicy:
    """Settings of turns, checked.

    Raises:
        ValueError: there is no such setting, or not with this value.
    """
    if unknown := [name for name in given if name not in TURNS]:
        raise ValueError(f"there is no {', '.join(unknown)}; there are {', '.join(TURNS)}")
    try:
        return TurnPolicy(**given)
    except ValidationError as error:
        raise ValueError(wrong_settings(error)) from error
