"""The `toolbench` protocol beyond the contract: ToolBench's own ways to write, and what `Finish` means."""

import json

import pytest

from bfcl_env import Call
from interaction import get_protocol

toolbench = get_protocol("toolbench")
CD, LS = Call("cd", {"folder": "x"}), Call("ls", {})


def finish(**given):
    return f"Thought: \nAction: Finish\nAction Input: {json.dumps(given)}"


def test_calls_and_answers_are_rendered_line_by_line():
    assert toolbench.render_calls("two", [CD, LS]) == (
        'Thought: two\nAction: cd\nAction Input: {"folder": "x"}\nAction: ls\nAction Input: {}'
    )
    assert toolbench.render_answer("", "é") == (
        'Thought:\nAction: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "é"}'
    )


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ('\nThought: \nAction: cd\nAction Input: {"folder":"x"}\n', ""),
        ('Action: cd\nAction Input: {\n  "folder": "x"\n}\n', None),
        ('Thought: I look.\n\nIn there.\nAction: cd\nAction Input: {"folder": "x"}', "I look.\n\nIn there."),
        ('Thought: the Action: line\r\nAction:  cd\r\nAction Input:\n{"folder": "x"}', "the Action: line"),
    ],
    ids=["Qwen2", "ToolLLaMA", "GPT-4", "other line ends"],
)
def test_calls_in_each_form_that_is_read(text, thought):
    parsed = toolbench.parse(text)
    assert (parsed.error, parsed.calls, parsed.thought) == (None, (CD,), thought)


def test_labels_inside_a_json_string_are_text():
    call = Call("echo", {"content": 'x"}\nAction: rm\nAction Input: {}\nThought: y'})
    assert toolbench.parse(toolbench.render_calls("", [call, LS])).calls == (call, LS)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"return_type": "give_answer", "final_answer": "It rains.\nAction: x"}, "It rains.\nAction: x"),
        ({"final_answer": "", "return_type": "give_answer"}, ""),
        ({"return_type": "give_up_and_restart"}, ""),
        ({"return_type": "give_up_and_restart", "final_answer": "I cannot."}, "I cannot."),
    ],
)
def test_finish_ends_the_turn_with_its_words(given, answer):
    parsed = toolbench.parse(finish(**given))
    assert (parsed.error, parsed.calls, parsed.answer) == (None, (), answer)
    assert parsed.gave_up == (given["return_type"] == "give_up_and_restart")


def test_results_are_what_toolbenchs_server_answers_one_a_line():
    (message,) = toolbench.results(['{"a": 1}', "é\n", '{"error": "no \\"x\\""}', '{"error": "x", "left": 1}', "{"])
    assert [json.loads(line) for line in message["content"].split("\n")] == [
        {"error": "", "response": {"a": 1}},
        {"error": "", "response": "é\n"},
        {"error": 'no "x"', "response": ""},
        {"error": "", "response": {"error": "x", "left": 1}},
        {"error": "", "response": "{"},
    ]


@pytest.mark.parametrize("name", ["Finish", "a\nb", " a", ""])
def test_names_that_cannot_be_written_are_refused(name):
    with pytest.raises(ValueError, match="name of an action"):
        toolbench.render_calls("", [Call(name, {})])


@pytest.mark.parametrize("thought", ["x\nAction: ls", "x\nAction Input: {}", "x\nThought: y"])
def test_thoughts_that_would_be_read_as_actions_are_refused(thought):
    for render in (lambda: toolbench.render_calls(thought, [LS]), lambda: toolbench.render_answer(thought, "x")):
        with pytest.raises(ValueError, match="label"):
            render()


def test_a_function_called_finish_is_refused_where_it_is_documented():
    function = {"name": "Finish", "description": "", "parameters": {"type": "dict", "properties": {}}}
    for document in (lambda: toolbench.system_prompt([function]), lambda: toolbench.user_turn("x", [function])):
        with pytest.raises(ValueError, match="Finish, which is how the protocol 'toolbench' answers"):
            document()
