"""How much of a text goes on into a conversation."""

MAX_WORDS = 20_000
"""Characters of what a user model says at once; the rest is cut off."""


def cut(text: str, max_chars: int | None) -> str:
    """The first `max_chars` characters, and after them a mark that says how much is missing."""
    if max_chars is None or len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}... [{len(text) - max_chars} more characters]"
