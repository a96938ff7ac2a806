"""Chat templates that a rollout could not be continued with are refused by name, before anything starts."""

import pytest

from interaction import get_protocol
from recipe.cpu.tiny_policy import CHAT_TEMPLATE, make_tokenizer
from recipe.errors import PreflightError
from recipe.preflight.template import check_template

QWEN3_LIKE = CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{{ message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last "
    "else message['content'] }}",
)


@pytest.fixture
def tokenizer():
    return make_tokenizer(["made-up rules made-up request Results: [1] an earlier thought"] * 3)


def check(tokenizer, template, protocol="think_xml"):
    tokenizer.chat_template = template
    return check_template(tokenizer, get_protocol(protocol), "some/model", {})


def test_a_template_that_can_be_continued_passes_and_its_ending_is_told(tokenizer):
    assert check(tokenizer, CHAT_TEMPLATE) == r"messages end with '<|im_end|>\n'"


def test_a_template_that_drops_earlier_thoughts_passes_and_is_told(tokenizer):
    assert check(tokenizer, QWEN3_LIKE).endswith("; drops earlier thoughts, which rollouts keep")
    assert "thoughts" not in check(tokenizer, QWEN3_LIKE, "llama3_json"), "which writes none"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('System role not supported') }}", "roles system, user: .*System"),
        (
            "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}" + CHAT_TEMPLATE.split("%}", 1)[1],
            "roles system, user, user: .*roles must alternate",
        ),
        (CHAT_TEMPLATE.replace("messages %}", "messages if message.role != 'system' %}"), "leaves out .* role system"),
        (CHAT_TEMPLATE.partition("{% if add_generation_prompt %}")[0], "writes no header"),
        ("{{ messages | length }}" + CHAT_TEMPLATE, "changes what it has written when a message follows"),
        (
            CHAT_TEMPLATE.replace("{{ message['content'] }}", "{{ message['content'] if message['role'] == 'user' or "
                                  "message['role'] == 'system' }}"),
            "does not show what the assistant said",
        ),
    ],
)  # fmt: skip
def test_a_template_that_rollouts_cannot_use_is_refused_by_name(tokenizer, template, message):
    with pytest.raises(PreflightError, match=f"the chat template of some/model.*{message}"):
        check(tokenizer, template.replace("for m in", "for message in").replace("m.role ==", "message.role =="))


@pytest.mark.parametrize("protocol", ["think_xml", "llama3_json", "python_calls", "toolbench"])
def test_a_header_that_opens_the_thought_is_refused_for_protocols_that_would_not_read_it(tokenizer, protocol):
    with pytest.raises(PreflightError, match=f"opens <think> itself.*interaction.protocol={protocol} does not read"):
        check(tokenizer, CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"), protocol)


def test_a_header_that_opens_the_thought_suits_hermes(tokenizer):
    check(tokenizer, CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"), "hermes")
