"""How much of a text goes on into a conversation, or into a message to a person."""

from pydantic import ValidationError

MAX_WORDS = 20_000
"""Characters of what a user model says at once; the rest is cut off."""

LONGEST = 300
"""Characters of an exception's text that a message repeats."""


def cut(text: str, max_chars: int | None) -> str:
    """The first `max_chars` characters, and after them a mark that says how much is missing."""
    if max_chars is None or len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}... [{len(text) - max_chars} more characters]"


def spoken(name: str, text: str | None) -> str:
    """Lines for a terminal, of a text that others wrote: without control characters, or a line like one of ours."""
    plain = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in cut(text or "", 5_000))
    return f"{name:>9}  {plain}".replace("\n", f"\n{'':11}")


def wrong_settings(error: ValidationError) -> str:
    """What was wrong with the fields of a checked dataclass, in one line."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


def line_of(error: BaseException) -> str:
    """An exception as one line, whatever its text is."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its text cannot be had)"
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
