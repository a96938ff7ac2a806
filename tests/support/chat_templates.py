"""Chat templates of published models, as their tokenizer_config.json has them, and tokenizers that use them."""

import importlib.util
import textwrap
from pathlib import Path

from support.control_tokens import LLAMA, QWEN, tokenizer_with


def quoted_by_bfcl(module: str) -> str:
    """The chat template in the documentation of a handler of bfcl-eval; read as text, not imported."""
    root = Path(importlib.util.find_spec("bfcl_eval").origin).parent / "model_handler/local_inference"
    quoted = (root / f"{module}.py").read_text().partition('"chat_template":\n')[2].partition('"""')[0]
    assert "tool" in quoted
    return textwrap.dedent(quoted).strip()


QWEN2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

THINKS_LAST = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if loop.last and loop.index0 and message['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Writes a thought into the last message alone, as Qwen3's does."""

OPENS_THOUGHT = QWEN2.replace(
    "{{ '<|im_start|>assistant\n' }}{% endif %}", "{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""Begins the model's message inside a thought that it does not write itself, as those of reasoning models do."""


def qwen2(template: str = QWEN2):
    tokenizer = tokenizer_with(QWEN)
    tokenizer.chat_template = template
    return tokenizer


def llama31():
    tokenizer = tokenizer_with(LLAMA)
    tokenizer.chat_template = "{%- set tools = none %}" + quoted_by_bfcl("llama_3_1")  # functions are in the prompt
    tokenizer.bos_token, tokenizer.eos_token = LLAMA[0], "<|eot_id|>"
    return tokenizer
