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

LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message + builtin tools #}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
            + message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {{- message.content | tojson }}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
"""Without its parts for tools, which conversations of texts do not reach."""

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

ALTERNATES = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Takes no two messages of the user in a row, as Mistral's does."""


def qwen2(template: str = QWEN2):
    """A small tokenizer with Qwen2's control tokens."""
    tokenizer = tokenizer_with(QWEN)
    tokenizer.chat_template = template
    return tokenizer


def llama31():
    """A small tokenizer with Llama-3.1's control tokens."""
    tokenizer = tokenizer_with(LLAMA)
    tokenizer.chat_template, tokenizer.bos_token, tokenizer.eos_token = LLAMA31, LLAMA[0], "<|eot_id|>"
    return tokenizer
