"""The `hermes` protocol beyond the contract: byte for byte what the real templates write, and what counts as what."""

import importlib.util
import textwrap
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from bfcl_env import Call, load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol

hermes = get_protocol("hermes")
SCENARIOS = [load_scenarios(f"multi_turn_{category}")[index] for category, index in (("base", 0), ("long_context", 58))]
CALL = '<tool_call>\n{"name": "cd", "arguments": {"folder": "x"}}\n</tool_call>'
CD = (Call("cd", {"folder": "x"}),)


def template_in(module):
    """The chat template that bfcl-eval quotes in the documentation of a handler; read as text, not imported."""
    root = Path(importlib.util.find_spec("bfcl_eval").origin).parent / "model_handler/local_inference"
    source = (root / f"{module}.py").read_text()
    quoted = source.partition('"chat_template":\n')[2].partition('"""')[0]
    assert "tool_response" in quoted
    return textwrap.dedent(quoted).strip()


TEMPLATES = {
    "Qwen3": template_in("qwen_fc"),
    # Arch-Agent is a Qwen2.5 model; its template is Qwen2.5's except for the default system message, not used here.
    "Qwen2.5": template_in("arch"),
}


def render(template, messages, tools=None):
    (text,), _ = render_jinja_template([messages], tools=tools, chat_template=template, add_generation_prompt=True)
    return text


def structured(scenario, thoughts=False):
    """A gold conversation as an API client would give it to a template: tool calls and tool messages as data."""
    messages = [{"role": "system", "content": hermes.instructions()}]
    for message in gold_messages(scenario, hermes)[1:]:
        content = message["content"]
        if message["role"] == "assistant":
            parsed = hermes.parse(content)
            calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in parsed.calls]
            entry = {"role": "assistant", "content": parsed.answer or ""}
            messages.append(entry | ({"tool_calls": calls} if calls else {}))
            if thoughts:
                messages[-1]["reasoning_content"] = parsed.thought
        elif content.startswith("<tool_response>"):
            body = content.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
            for text in body.split("\n</tool_response>\n<tool_response>\n"):
                messages.append({"role": "tool", "content": text})
        else:
            messages.append(message)
    return messages


def without_thoughts(messages):
    return [message | {"content": message["content"].rpartition("</think>\n\n")[2]} for message in messages]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_whole_episode_is_byte_for_byte_what_the_template_writes_with_tools(template, scenario):
    ours = without_thoughts(gold_messages(scenario, hermes))
    tools = hermes.tools(scenario.functions(0))
    assert render(template, ours) == render(template, structured(scenario), tools)
    plain = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in ours)
    if template == TEMPLATES["Qwen2.5"]:
        assert render(template, ours) == f"{plain}<|im_start|>assistant\n", "and any ChatML template writes it so"


@pytest.mark.parametrize(
    "end", [3, 5], ids=["after the system, a request and calls", "and after results and an answer"]
)
def test_thoughts_are_byte_for_byte_what_the_qwen3_template_writes(end):
    scenario = SCENARIOS[0]
    ours = gold_messages(scenario, hermes)[:end]
    theirs = structured(scenario, thoughts=True)
    theirs = theirs[: 3 if end == 3 else 3 + sum(message["role"] == "tool" for message in theirs[3:9]) + 1]
    tools = hermes.tools(scenario.functions(0))
    assert ours[2]["content"].startswith("<think>\n") and ours[-1]["role"] == "assistant"
    assert render(TEMPLATES["Qwen3"], ours) == render(TEMPLATES["Qwen3"], theirs, tools)


def test_feedback_does_not_make_the_qwen3_template_drop_the_thoughts_before_it():
    opening = hermes.opening(SCENARIOS[0].functions(0), "Go.")
    said = {"role": "assistant", "content": hermes.render_calls("thinking hard", CD)}
    feedback = hermes.feedback(hermes.parse("<tool_call>"))
    assert "thinking hard" in render(TEMPLATES["Qwen3"], [*opening, said, *feedback])


def test_tools_are_named_as_in_json_schema():
    (tool,) = hermes.tools([f for f in SCENARIOS[0].functions(0) if f["name"] == "tail"])
    assert tool["type"] == "function" and tool["function"]["parameters"]["type"] == "object"
    assert tool["function"]["parameters"]["properties"]["lines"]["type"] == "integer"


def test_an_announcement_is_a_tools_block_and_the_users_words():
    (message,) = hermes.user_turn("", SCENARIOS[0].functions(0)[:1])
    lines = message["content"].split("\n")
    assert (lines[0], lines[2]) == ("<tools>", "</tools>") and lines[3].startswith("I have updated")


def test_words_before_the_first_block_are_spoken_beside_the_calls():
    parsed = hermes.parse(f"I will look.\n{CALL}\n{CALL}")
    assert (parsed.calls, parsed.answer, parsed.thought) == (CD * 2, None, None)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("All done.", None, "All done."),
        ("", None, ""),
        ("<think>\nhm\n</think>\n\nAll done.", "hm", "All done."),
        ("hm\n</think>\n\nAll done.", "hm", "All done."),
        ("<think>\n\n</think>\n\n", "", ""),
        (f"<think>I could write {CALL}</think>No.", f"I could write {CALL}", "No."),
        ('The file holds {"name": "Bob"} and 3 < 4.', None, 'The file holds {"name": "Bob"} and 3 < 4.'),
    ],
)
def test_a_message_without_a_block_is_the_answer(text, thought, answer):
    parsed = hermes.parse(text)
    assert (parsed.thought, parsed.answer, parsed.calls) == (thought, answer, ())


@pytest.mark.parametrize("text", [f"hm</think>\n\n{CALL}", f"<think>hm</think>Look:{CALL}", f"<think>hm</think>{CALL}"])
def test_calls_after_a_thought(text):
    parsed = hermes.parse(text)
    assert (parsed.thought, parsed.calls) == ("hm", CD)


def test_a_call_in_a_thought_that_the_template_opened_never_runs():
    for text in (f"I could write {CALL}</think>Done.", f"I could write {CALL} but no.</think>Done."):
        parsed = hermes.parse(text)
        assert parsed.error in ("multiple_blocks", "text_outside") and not parsed.calls


def test_tags_inside_a_json_string_are_text():
    call = Call("echo", {"content": '</tool_call> <tool_call> </think> <tool_response> "\\'})
    assert hermes.parse(hermes.render_calls("", [call])).calls == (call,)


def test_one_bad_block_makes_the_whole_message_malformed():
    parsed = hermes.parse(f"{CALL}\n<tool_call>\n{{\n</tool_call>")
    assert (parsed.error, parsed.calls) == ("bad_json", ())


def test_rendering_refuses_texts_that_would_not_parse_back():
    with pytest.raises(ValueError, match="answer"):
        hermes.render_answer("", "use <tool_call>")
    with pytest.raises(ValueError, match="tag"):
        hermes.render_calls("a</think>b", CD)


def test_signature_docs_make_a_short_prompt():
    prompt = get_protocol("hermes", docs="signature").system_prompt(SCENARIOS[0].functions(0)[:2])
    assert len(prompt) < 400 and prompt.endswith("</tools>")
