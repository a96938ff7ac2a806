"""The `think_xml` protocol beyond the contract: its exact texts, and what its tags mean where."""

import json

import pytest

from bfcl_env import Call
from interaction import get_protocol

FUNCTIONS = [
    {
        "name": "cd",
        "description": "Change the folder.",
        "parameters": {
            "type": "dict",
            "properties": {"folder": {"type": "string", "description": "The folder."}},
            "required": ["folder"],
        },
        "response": {"type": "dict", "properties": {}},
    },
    {
        "name": "tail",
        "description": "Last lines.",
        "parameters": {
            "type": "dict",
            "properties": {
                "file_name": {"type": "string", "description": "The file."},
                "lines": {"type": "integer", "description": "How many.", "default": 10},
                "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags.", "default": "None"},
            },
            "required": ["file_name"],
        },
    },
]
think_xml = get_protocol("think_xml")

T = "<think>t</think>"
CALL = '{"name":"cd","arguments":{"folder":"x"}}'


def test_calls_are_rendered_in_the_exact_compact_form():
    text = think_xml.render_calls("cd, mv", [Call(name="cd", arguments={"folder": "é"})])
    assert text == '<think>cd, mv</think><tool_call>[{"name":"cd","arguments":{"folder":"é"}}]</tool_call>'
    assert think_xml.render_answer("done", "done") == "<think>done</think><answer>done</answer>"


def test_white_space_around_and_between_blocks_is_allowed():
    parsed = think_xml.parse(f"\n <think>\nt\n</think>\n\n<tool_call>\n[{CALL}]\n</tool_call>\n")
    assert (parsed.thought, parsed.calls) == ("t", (Call(name="cd", arguments={"folder": "x"}),))


def test_a_single_call_may_stand_without_a_list():
    assert think_xml.parse(f"{T}<tool_call>{CALL}</tool_call>").calls == (Call(name="cd", arguments={"folder": "x"}),)


def test_tags_inside_a_json_string_are_text():
    call = Call(name="echo", arguments={"content": "</tool_call><answer>x</answer><tool_call>"})
    assert think_xml.parse(think_xml.render_calls("t", [call])).calls == (call,)


def test_calls_inside_an_answer_or_a_thought_are_only_text():
    parsed = think_xml.parse(f"{T}<answer>[{CALL}]</answer>")
    assert (parsed.calls, parsed.answer) == ((), f"[{CALL}]")
    parsed = think_xml.parse(f"<think><tool_call>[{CALL}]</tool_call></think><answer>x</answer>")
    assert (parsed.calls, parsed.answer) == ((), "x")


def test_rendering_refuses_texts_that_would_not_parse_back():
    with pytest.raises(ValueError, match="tag"):
        think_xml.render_answer("t", "a</answer>b")
    with pytest.raises(ValueError, match="tag"):
        think_xml.render_calls("a</think>b", [Call(name="ls", arguments={})])


def test_json_docs_are_one_compact_line_each_without_the_response():
    prompt = think_xml.system_prompt(FUNCTIONS)
    lines = prompt.splitlines()[-2:]
    assert [json.loads(line)["name"] for line in lines] == ["cd", "tail"]
    assert '"response"' not in prompt and ": " not in lines[0]


def test_signature_docs_are_one_short_line_each_and_the_rules_are_short():
    prompt = get_protocol("think_xml", docs="signature").system_prompt(FUNCTIONS)
    assert prompt.splitlines()[-2:] == [
        "cd(folder: str)",
        "tail(file_name: str, lines: int = 10, tags: list[str] = null)",
    ]
    assert len(prompt) < 300


def test_an_announcement_holds_the_new_documentation_and_the_benchmarks_sentence():
    (message,) = think_xml.user_turn("", FUNCTIONS[:1])
    documentation, sentence = message["content"].split("\n")
    assert json.loads(documentation)["name"] == "cd"
    assert sentence == "I have updated some more functions you can choose from. What about now?"
    assert think_xml.user_turn("Go on.", FUNCTIONS[:1])[0]["content"] == f"{documentation}\nGo on."
    assert think_xml.user_turn("Go on.")[0]["content"] == "Go on."


def test_results_are_a_json_list_in_which_json_stands_as_it_is():
    (message,) = think_xml.results(['{"a": 1}', "None", '{"a": 1} Hint: x', "{broken}"])
    assert message == {"role": "user", "content": 'Results: [{"a": 1},"None","{\\"a\\": 1} Hint: x","{broken}"]'}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("think_xlm", {}), "think_xml"),
        (("think_xml", {"docs": "yaml"}), "signature"),
        (("think_xml", {"max_depht": 3}), "max_depth"),
    ],
)
def test_unknown_names_give_an_error_that_lists_the_known_ones(arguments, expected):
    name, options = arguments
    with pytest.raises(ValueError, match=expected):
        get_protocol(name, **options)
