"""What a server's reply says: a message, or in which words it has none. Nothing in it is trusted to be of a shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LONGEST_WAIT = 60.0
"""Seconds that are waited at most, whatever a server asks for."""
LONGEST_WORDS = 500
"""Characters of what a server says that are repeated."""
MOST_TOKENS = 2**40
"""A message that a server counts more in was counted by nobody."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One message of the model."""

    text: str
    truncated: bool
    """Cut by the token budget (finish_reason "length")."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the server counts them; 0 where it does not."""


def read(response: Any) -> Completion:
    """The message in a reply, without lone surrogates. Raises ValueError for a body that is not a chat completion."""
    try:
        choice = response.choices[0]
        text, finish = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, TypeError):
        raise ValueError(f"malformed body: {str(response)[:200]!r}") from None
    if not isinstance(text, str | None) or not isinstance(finish, str) or finish in ("abort", "error"):
        raise ValueError(f"malformed choice: content {str(text)[:80]!r}, finish_reason {finish!r}")
    return Completion(
        text=(text or "").encode("utf-8", "replace").decode("utf-8"),
        truncated=finish == "length",
        prompt_tokens=_tokens(response, "prompt_tokens"),
        completion_tokens=_tokens(response, "completion_tokens"),
    )


def _tokens(response: Any, name: str) -> int:
    """A number of the reply's `usage`; 0 where it says none that can be: no score depends on it."""
    value = getattr(getattr(response, "usage", None), name, None)
    return value if type(value) is int and 0 <= value < MOST_TOKENS else 0


def asked_to_wait(error: Exception) -> float | None:
    """Seconds after which the server wants to be asked again; None where it does not say."""
    response = getattr(error, "response", None)
    try:
        wait = float(response.headers["retry-after"]) if response is not None else 0.0
        return min(LONGEST_WAIT, wait) if wait > 0 else None
    except (KeyError, ValueError):
        return None


def words(error: Exception) -> str:
    """A fault, and what caused it, on one line."""
    cause = f" ({error.__cause__})" if error.__cause__ is not None and str(error.__cause__) else ""
    return one_line(f"{type(error).__name__}: {error}{cause}")


def one_line(text: str) -> str:
    """A server's words on one line of a terminal: what is not printable is shown as its code."""
    text = " ".join(text[: 2 * LONGEST_WORDS].split())[:LONGEST_WORDS]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
