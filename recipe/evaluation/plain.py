"""What goes to a server as text must not become control tokens there, whoever wrote it.

In training the environment's texts are made plain before they are tokenised, and the model's own tokens are never
encoded again (`interaction.plain_text`). A server tokenises the whole conversation anew for each message, so here the
model's earlier messages are made plain as well. With a model folder at hand it is known which texts are special; of a
server that is only an address it is not, and what the common families write is taken for special.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from interaction.plain_text import PlainText, generic

Plain = Callable[[str], str]


def of_model(model: Path, vllm_flags: Sequence[str] = ()) -> Plain:
    """By the tokenizer that vLLM will use; `generic` where that cannot be loaded here."""
    from recipe.errors import PreflightError
    from recipe.evaluation.server import flag_of
    from recipe.preflight.model import load_tokenizer

    try:
        return PlainText.of(load_tokenizer(flag_of(vllm_flags, "--tokenizer") or str(model)))
    except PreflightError:
        return generic
