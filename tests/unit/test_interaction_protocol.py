"""The contract of a protocol: what its prompt shows, its parser reads; what its parser refuses, its feedback names."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcl_env import Call
from interaction import get_protocol
from interaction.protocol import PROTOCOLS, FormatError

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
ALL = [(name, docs) for name in sorted(PROTOCOLS) for docs in ("json", "signature")]
think_xml = get_protocol("think_xml")

T = "<think>t</think>"
CALL = '{"name":"cd","arguments":{"folder":"x"}}'
DEEP = '[{"name":"f","arguments":{"a":' + "[" * 40 + "]" * 40 + "}}]"

MALFORMED = [
    ("", "missing_think"),
    ("   ", "missing_think"),
    ("hello", "missing_think"),
    ("<answer>x</answer>", "missing_think"),
    ("<think>x", "missing_think"),
    ("<thinking>x</thinking><answer>x</answer>", "missing_think"),
    (T, "missing_action"),
    (T + " I am done.", "missing_action"),
    (T + f"<tool_call>[{CALL}]", "missing_action"),
    (T + "<answer>x", "missing_action"),
    (T + "<answer>x<answer>", "missing_action"),
    (T + T + "<answer>x</answer>", "multiple_blocks"),
    ("<think>a<think>b</think><answer>x</answer>", "multiple_blocks"),
    (T + f"<tool_call>[{CALL}]</tool_call><tool_call>[{CALL}]</tool_call>", "multiple_blocks"),
    (T + "<answer>a</answer><answer>b</answer>", "multiple_blocks"),
    (T + f"<tool_call>[{CALL}]</tool_call>" + T, "multiple_blocks"),
    (T + f"<tool_call>[{CALL}]</tool_call><answer>x</answer>", "both_actions"),
    (T + f"<answer>x</answer><tool_call>[{CALL}]</tool_call>", "both_actions"),
    (T + f"<answer><tool_call>[{CALL}]</tool_call></answer>", "both_actions"),
    (T + f"hm <tool_call>[{CALL}]</tool_call>", "text_outside"),
    (T + f"<tool_call>[{CALL}]</tool_call> done", "text_outside"),
    (T + "<answer>x</answer> bye", "text_outside"),
    ("Sure. " + T + "<answer>x</answer>", "text_outside"),
    (T + "<tool_call></tool_call>", "bad_json"),
    (T + "<tool_call>cd(folder='x')</tool_call>", "bad_json"),
    (T + "<tool_call>[{'name':'cd','arguments':{}}]</tool_call>", "bad_json"),
    (T + f"<tool_call>[{CALL},]</tool_call>", "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":NaN}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":-Infinity}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":1e999}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":1,"x":2}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","name":"g","arguments":{}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":"\\ud800"}}]</tool_call>', "bad_json"),
    (T + '<tool_call>[{"name":"f","arguments":{"x":' + "9" * 5000 + "}}]</tool_call>", "bad_json"),
    (T + '<tool_call>"cd"</tool_call>', "wrong_shape"),
    (T + "<tool_call>[1]</tool_call>", "wrong_shape"),
    (T + f"<tool_call>[[{CALL}]]</tool_call>", "wrong_shape"),
    (T + "<tool_call>{}</tool_call>", "wrong_shape"),
    (T + '<tool_call>[{"name":"f"}]</tool_call>', "wrong_shape"),
    (T + '<tool_call>[{"name":"f","arguments":[]}]</tool_call>', "wrong_shape"),
    (T + '<tool_call>[{"name":"","arguments":{}}]</tool_call>', "wrong_shape"),
    (T + '<tool_call>[{"name":3,"arguments":{}}]</tool_call>', "wrong_shape"),
    (T + '<tool_call>[{"name":"f","arguments":{},"id":1}]</tool_call>', "wrong_shape"),
    (T + "<tool_call>[]</tool_call>", "empty_calls"),
    (T + "<tool_call>[" + ",".join([CALL] * 41) + "]</tool_call>", "too_many_calls"),
    (T + "<answer>" + "x" * 200_000 + "</answer>", "too_long"),
    (T + f"<tool_call>{DEEP}</tool_call>", "too_deep"),
    (T + "<tool_call>" + "[" * 90_000 + "</tool_call>", "too_deep"),
]


@pytest.mark.parametrize(("name", "docs"), ALL)
def test_the_examples_in_the_prompt_are_what_the_parser_reads(name, docs):
    protocol = get_protocol(name, docs=docs)
    prompt = protocol.system_prompt(FUNCTIONS)
    kinds = set()
    for example in protocol.examples():
        assert example in prompt
        parsed = protocol.parse(example)
        assert parsed.well_formed
        kinds.add("answer" if parsed.answer is not None else "calls")
    assert kinds == {"answer", "calls"}


@pytest.mark.parametrize(("text", "error"), MALFORMED)
def test_each_malformed_message_gets_its_typed_error_and_feedback(text, error):
    parsed = think_xml.parse(text)
    assert parsed.error == error
    assert not parsed.well_formed and parsed.calls == () and parsed.answer is None
    (message,) = think_xml.feedback(parsed)
    assert message["role"] == "user"
    assert "<think>" in message["content"] and len(message["content"]) < 700


def test_every_format_error_is_provoked_by_some_message_or_by_the_budget():
    assert {error for _, error in MALFORMED} | {FormatError.truncated} == set(FormatError)


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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(Call, name=st.text(min_size=1, max_size=128), arguments=st.dictionaries(st.text(), json_values))
pieces = st.lists(
    st.sampled_from(
        '<think> </think> <tool_call> </tool_call> <answer> </answer> [ ] { } , : " \\ name arguments 1 NaN'.split()
        + ['"name":"f"', '"arguments":{}', CALL, " ", "\ud800"]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


@settings(deadline=None)
@given(st.lists(calls, min_size=1, max_size=5))
def test_whatever_is_rendered_parses_back(made):
    parsed = think_xml.parse(think_xml.render_calls("t", made))
    assert parsed.error in (None, FormatError.too_deep)
    if parsed.well_formed:
        assert parsed.calls == tuple(made)


@settings(deadline=None)
@given(st.text() | pieces | pieces.map(lambda text: T + text) | pieces.map(lambda t: f"{T}<tool_call>{t}</tool_call>"))
def test_no_text_makes_the_parser_raise(text):
    parsed = think_xml.parse(text)
    assert (parsed.error is not None) + bool(parsed.calls) + (parsed.answer is not None) == 1
    json.dumps([call.arguments for call in parsed.calls], allow_nan=False)
    if parsed.error is not None:
        think_xml.feedback(parsed)


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
