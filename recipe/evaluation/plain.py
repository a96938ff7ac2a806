"""What goes to a server as text must not become control tokens there, whoever wrote it.

In training the environment's texts are made plain before they are tokenised, and the model's own tokens are never
encoded again (`interaction.plain_text`). A server tokenises the whole conversation anew for each message, so here the
model's earlier messages are made plain as well. With a model folder at hand it is known which texts are special; of a
server that is only an address it is not, and what the common families write is taken for special.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

Plain = Callable[[str], str]

_CONTROL = re.compile(
    r"<\|[^<>|\n]{1,64}\|>"  # Qwen, Llama 3 and 4, Phi, GPT, GLM, Granite, Kimi, Cohere
    r"|<\uff5c[^<>\uff5c\n]{1,64}\uff5c>"  # DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop)>|\[gMASK\]"
    r"|<(?:start|end)_of_(?:turn|image)>"  # Gemma
    r"|\[/?(?:INST|IMG|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]"  # Mistral
    r"|<</?SYS>>"  # Llama 2
)


def generic(text: str) -> str:
    """The text with a space in whatever looks like a control token of a common family, and without lone surrogates."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    while _CONTROL.search(text):  # a space may join what it does not part
        text = _CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text


def of_model(model: Path, vllm_flags: Sequence[str] = ()) -> Plain:
    """By the tokenizer that vLLM will use; `generic` where that cannot be loaded here."""
    from interaction.plain_text import PlainText
    from recipe.errors import PreflightError
    from recipe.evaluation.server import flag_of
    from recipe.preflight.model import load_tokenizer

    try:
        return PlainText.of(load_tokenizer(flag_of(vllm_flags, "--tokenizer") or str(model)))
    except PreflightError:
        return generic
