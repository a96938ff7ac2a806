"""The protocols without tags, `llama3_json` and `python_calls`, beyond the contract: what counts as a call."""

import pytest

from bfcl_env import Call
from interaction import get_protocol

llama = get_protocol("llama3_json")
python = get_protocol("python_calls")
CD = Call("cd", {"folder": "x"})
LS = Call("ls", {})
LLAMA_CD, LLAMA_LS = llama.render_calls("", [CD]), llama.render_calls("", [LS])


def test_calls_are_rendered_as_the_llama_template_writes_them():
    assert LLAMA_CD == '{"name": "cd", "parameters": {"folder": "x"}}'
    assert llama.render_calls("a thought has no place", [CD, LS]) == f"{LLAMA_CD}; {LLAMA_LS}"


@pytest.mark.parametrize(
    "text",
    [
        f"{LLAMA_CD}; {LLAMA_LS}",
        f"{LLAMA_CD};{LLAMA_LS};",
        f"{LLAMA_CD}\n{LLAMA_LS}",
        f"[{LLAMA_CD}, {LLAMA_LS}]",
        f"<|python_tag|>{LLAMA_CD}; {LLAMA_LS}",
        f'{{"type": "function", {LLAMA_CD[1:]}; {LLAMA_LS}',
        LLAMA_CD.replace("parameters", "arguments") + "; " + LLAMA_LS,
    ],
)
def test_llama_calls_in_each_form_that_is_read(text):
    assert llama.parse(text).calls == (CD, LS)


def test_semicolons_and_brackets_inside_a_json_string_are_text():
    call = Call("echo", {"content": '}; {"name": "ls", "parameters": {}}]"\\'})
    assert llama.parse(llama.render_calls("", [call, LS])).calls == (call, LS)


@pytest.mark.parametrize("text", ["", "Done.", "It is [1] {not} JSON.", "[1, 2]", 'It holds {"name": "Bob"}.'])
def test_other_texts_are_answers_in_llama3_json(text):
    assert llama.parse(text).answer == text


def test_llama_results_are_one_object_a_line():
    (message,) = llama.results(['{"a": 1}', "é\n"])
    assert message["content"] == '{"output": "{\\"a\\": 1}"}\n{"output": "é\\n"}'


def test_calls_are_rendered_in_the_benchmarks_prompting_format():
    assert python.render_calls("", [CD, LS]) == "[cd(folder='x'), ls()]"


@pytest.mark.parametrize(
    "text",
    [
        "[cd(folder='x'), ls()]",
        '[cd(folder="x"), ls()]',
        "cd(folder='x'), ls()",
        "`[cd(folder='x'), ls()]`",
        "```\n[cd(folder='x'), ls()]\n```",
        "[ cd( folder = 'x' ),\n  ls(),\n]",
    ],
)
def test_python_calls_in_each_form_that_is_read(text):
    assert python.parse(text).calls == (CD, LS)


def test_literals_of_every_kind_are_read():
    text = "[f(a=-1, b=[1.5, (True, None)], c={'k': {}}, d='a' 'b', e=-0.5)]"
    (call,) = python.parse(text).calls
    assert call.arguments == {"a": -1, "b": [1.5, (True, None)], "c": {"k": {}}, "d": "ab", "e": -0.5}


def test_text_that_looks_like_calls_inside_a_string_is_text():
    call = Call("echo", {"content": "]; [rm(x='y')] (now)"})
    assert python.parse(python.render_calls("", [call])).calls == (call,)


def test_class_names_before_a_function_are_part_of_its_name():
    assert python.parse("[GorillaFileSystem.ls()]").calls == (Call("GorillaFileSystem.ls", {}),)


@pytest.mark.parametrize(
    "text", ["", "[]", "Done.", "I moved it (see above).", "[see](http://x.y)", "rm(1) is what I would use.", "[1, 2]"]
)
def test_other_texts_end_the_turn_as_in_the_official_evaluation(text):
    assert python.parse(text).answer == text


@pytest.mark.parametrize("name", ["a b", "from", "ﬁ", "e\u0301", "1a", ""])
def test_names_that_python_cannot_write_are_refused(name):
    with pytest.raises(ValueError, match="Python syntax"):
        python.render_calls("", [Call("f", {name: 1})])


def test_argument_names_of_other_alphabets_are_names_in_python_too():
    call = Call("get_vehicle", {"año_vehiculo": 2022, "年": 1})
    assert python.parse(python.render_calls("", [call])).calls == (call,)


@pytest.mark.parametrize(("protocol", "text"), [(llama, f"Sure: {LLAMA_LS}"), (python, "Sure: [ls()]")])
def test_rendering_refuses_answers_that_would_be_read_as_calls(protocol, text):
    with pytest.raises(ValueError, match="answer"):
        protocol.render_answer("", text)
