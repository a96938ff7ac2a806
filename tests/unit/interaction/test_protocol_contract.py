"""What every protocol keeps: its prompt and its parser agree, each mistake has its error, nothing a model writes runs.

A protocol listed in PROTOCOLS is tested here without further ado, except that it needs its table in MALFORMED.
"""

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import interaction.protocol
from bfcl_env import Call, load_scenarios
from data_prep.sft import gold_messages
from interaction import Conversation, get_protocol
from interaction.protocol import PROTOCOLS, REVEAL_SENTENCE, FormatError
from interaction.protocol.base import EXPLANATIONS

NAMES = sorted(PROTOCOLS)
README = Path(interaction.protocol.__file__).with_name("README.md")
PARSE_LIMIT = 200_000

T = "<think>t</think>"
CALL = '{"name":"cd","arguments":{"folder":"x"}}'
DEEP = '[{"name":"f","arguments":{"a":' + "[" * 40 + "]" * 40 + "}}]"


def block(content: str) -> str:
    return f"<tool_call>\n{content}\n</tool_call>"


LLAMA = '{"name": "cd", "parameters": {"folder": "x"}}'
ACTION = 'Action: cd\nAction Input: {"folder": "x"}'


def finish(**given: object) -> str:
    return f"Thought: t\nAction: Finish\nAction Input: {json.dumps(given)}"


def action_input(content: str) -> str:
    return f"Thought: t\nAction: f\nAction Input: {content}"


MALFORMED = {
    "think_xml": [
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
    ],
    "hermes": [
        ("<think>x", "missing_tag"),
        ("<think>x" + block(CALL), "missing_tag"),
        (f"<tool_call>\n{CALL}", "missing_tag"),
        (f"{CALL}\n</tool_call>", "missing_tag"),
        (f"<tool_call>\n{CALL}\n<tool_call>\n{CALL}\n</tool_call>", "missing_tag"),
        (f"{block(CALL)}\n</tool_call>", "missing_tag"),
        (block(CALL) + "\n<tool_call>", "missing_tag"),
        (CALL, "missing_tag"),
        (f"I will look.\n```json\n{CALL}\n```", "missing_tag"),
        (f"{T}{CALL}", "missing_tag"),
        ("<think>a<think>b</think>x", "multiple_blocks"),
        (T + T + "x", "multiple_blocks"),
        (T + block(CALL) + T, "multiple_blocks"),
        ("x" + T + "y", "text_outside"),
        (block(CALL) + " done", "text_outside"),
        (f"{block(CALL)} then {block(CALL)}", "text_outside"),
        (block(CALL) + "\n<tool_response>\nNone\n</tool_response>", "text_outside"),
        ("<tool_response>\nNone\n</tool_response>", "text_outside"),
        ("<tool_call></tool_call>", "bad_json"),
        (block("cd(folder='x')"), "bad_json"),
        (block("{'name':'cd','arguments':{}}"), "bad_json"),
        (block('{"name": "cd, "arguments": {}}'), "bad_json"),
        (block('{"name": "cd", "arguments": {"folder": "it"s"}}'), "bad_json"),
        (block(CALL) + block(CALL + ","), "bad_json"),
        (block(CALL + "\n" + CALL), "bad_json"),
        (block('{"name":"f","arguments":{"x":NaN}}'), "bad_json"),
        (block('{"name":"f","arguments":{"x":1e999}}'), "bad_json"),
        (block('{"name":"f","arguments":{"x":1,"x":2}}'), "bad_json"),
        (block('{"name":"f","arguments":{"x":"\\ud800"}}'), "bad_json"),
        (block(f"[{CALL}]"), "wrong_shape"),
        (block("[]"), "wrong_shape"),
        (block("{}"), "wrong_shape"),
        (block('{"name":"f"}'), "wrong_shape"),
        (block('{"arguments":{}}'), "wrong_shape"),
        (block('{"name":"f","parameters":{}}'), "wrong_shape"),
        (block('{"name":"f","arguments":"{}"}'), "wrong_shape"),
        (block('{"name":"","arguments":{}}'), "wrong_shape"),
        (block('{"name":"f","arguments":{},"id":1}'), "wrong_shape"),
        ("\n".join([block(CALL)] * 41), "too_many_calls"),
        ("x" * 200_001, "too_long"),
        (block(DEEP[1:-1]), "too_deep"),
        (block("[" * 90_000), "too_deep"),
        (block('{"name":"f","arguments":{"a":[' + "[]," * 20_000 + "0]}}"), "too_long"),
    ],
    "llama3_json": [
        ("Sure. " + LLAMA, "text_outside"),
        (LLAMA + " done", "text_outside"),
        (f"{LLAMA}, {LLAMA}", "text_outside"),
        (f'{LLAMA}; "x"; {LLAMA}', "text_outside"),
        (f"```json\n{LLAMA}\n```", "text_outside"),
        ('Sure. {"parameters": {}, "name": "ls"}', "text_outside"),
        (LLAMA[:-1], "bad_json"),
        (LLAMA + "}", "bad_json"),
        ("{'name': 'cd', 'parameters': {}}", "bad_json"),
        ("{cd(folder='x')}", "bad_json"),
        (f"[{LLAMA},]", "bad_json"),
        ('{"name": "f", "parameters": {"x": NaN}}', "bad_json"),
        ('{"name": "f", "parameters": {"x": 1e999}}', "bad_json"),
        ('{"name": "f", "parameters": {"x": 1, "x": 2}}', "bad_json"),
        ('{"name": "f", "parameters": {"x": "\\ud800"}}', "bad_json"),
        ("{}", "wrong_shape"),
        ('{"name": "f"}', "wrong_shape"),
        ('{"parameters": {}}', "wrong_shape"),
        ('{"name": "f", "parameters": []}', "wrong_shape"),
        ('{"name": "", "parameters": {}}', "wrong_shape"),
        ('{"name": "f", "parameters": {}, "arguments": {}}', "wrong_shape"),
        ('{"type": "tool", "name": "f", "parameters": {}}', "wrong_shape"),
        (f"{LLAMA}; [{LLAMA}]", "wrong_shape"),
        (f"[{LLAMA}, 1]", "wrong_shape"),
        ("[]", "empty_calls"),
        ("; ".join([LLAMA] * 41), "too_many_calls"),
        (f"[{', '.join([LLAMA] * 41)}]", "too_many_calls"),
        ("x" * 200_001, "too_long"),
        ('{"name":"f","parameters":{"a":' + "[" * 40 + "]" * 40 + "}}", "too_deep"),
        ("[{" + "[" * 90_000 + "]" * 90_000 + "}]", "too_deep"),
        ('{"name": "f", "parameters": {"a": [' + "[]," * 20_000 + "0]}}", "too_long"),
    ],
    "python_calls": [
        ("Sure: [cd(folder='x')]", "text_outside"),
        ("[cd(folder='x')]\nDone.", "text_outside"),
        ("```python\n[cd(folder='x')]\n```", "text_outside"),
        ("[cd(folder='x'", "bad_syntax"),
        ("[cd(folder='x)]", "bad_syntax"),
        ("[cd(folder=x y)]", "bad_syntax"),
        ("cd(folder='x') then", "bad_syntax"),
        ("cd(folder='x')\nls()", "bad_syntax"),
        ("[f(\0)]", "bad_syntax"),
        ("[f(x=" + "9" * 5000 + ")]", "bad_syntax"),
        ("[cd('x')]", "wrong_shape"),
        ("[cd(folder=x)]", "wrong_shape"),
        ("[cd(folder=str('x'))]", "wrong_shape"),
        ("[f(x=true)]", "wrong_shape"),
        ("[f(x=1+1)]", "wrong_shape"),
        ("[f(x='a'*9)]", "wrong_shape"),
        ("[f(x=b'a')]", "wrong_shape"),
        ("[f(x={1})]", "wrong_shape"),
        ("[f(x={[]: 1})]", "wrong_shape"),
        ("[f(x=1j)]", "wrong_shape"),
        ("[f(x=...)]", "wrong_shape"),
        ("[f(x=f'{1}')]", "wrong_shape"),
        ("[f(x=1e999)]", "wrong_shape"),
        ("[f(x='\\ud800')]", "wrong_shape"),
        ("[f(**{'x': 1})]", "wrong_shape"),
        ("[f(x=1, x=2)]", "wrong_shape"),
        ("[f(x=1), 2]", "wrong_shape"),
        ("[f(x=1)()]", "wrong_shape"),
        ("[f(x=1), [g()]]", "wrong_shape"),
        ("[f() for f in x]", "wrong_shape"),
        ("[f()], [g()]", "wrong_shape"),
        ("[f()][0]", "wrong_shape"),
        ("__import__('os').system('true')", "wrong_shape"),
        ("[" + "f" * 200 + "()]", "wrong_shape"),
        ("[" + "ls()," * 41 + "]", "too_many_calls"),
        ("x" * 200_001, "too_long"),
        ("[f(x='" + "x" * 20_000 + "')]", "too_long"),
        ("[f(x=" + "[" * 17 + "]" * 17 + ")]", "too_deep"),
        ("[f(x=" + "[" * 5_000 + "]" * 5_000 + ")]", "too_deep"),
        ("[f(x=" + "-" * 10_000 + "1)]", "too_deep"),
        ("[f" + ".a" * 9_000 + "()]", "too_deep"),
    ],
    "toolbench": [
        ("", "missing_action"),
        ("I am done.", "missing_action"),
        ("Thought: I am done.", "missing_action"),
        ("Thought: I could\nnot.", "missing_action"),
        ('{"name": "cd", "arguments": {}}', "missing_action"),
        ("thought: t\naction: ls\naction input: {}", "missing_action"),
        ("Thought: t Action: ls Action Input: {}", "missing_action"),
        ("I look.\n" + ACTION, "text_outside"),
        ("<think>t</think>\n" + ACTION, "text_outside"),
        ("Action: cd\nin there\nAction Input: {}", "text_outside"),
        (ACTION + " done", "text_outside"),
        (ACTION + "\nObservation: None", "text_outside"),
        (ACTION + "}", "text_outside"),
        (f"{ACTION}\nthen\n{ACTION}", "text_outside"),
        ("Thought: a\nThought: b\n" + ACTION, "multiple_blocks"),
        (f"Thought: a\n{ACTION}\nThought: b\n{ACTION}", "multiple_blocks"),
        ("Thought: t\nAction: ls", "missing_tag"),
        ("Action: ls\nAction: ls\nAction Input: {}", "missing_tag"),
        ("Thought: t\nAction Input: {}", "missing_tag"),
        (ACTION + "\nAction Input: {}", "missing_tag"),
        (ACTION + "\nAction: ls", "missing_tag"),
        (action_input(""), "bad_json"),
        (action_input("folder"), "bad_json"),
        (action_input("{'folder': 'x'}"), "bad_json"),
        (action_input('{"folder": "x"'), "bad_json"),
        (action_input('{"folder": "x",}'), "bad_json"),
        (action_input('{"a": "b\nc"}'), "bad_json"),
        (action_input('{"x": NaN}'), "bad_json"),
        (action_input('{"x": 1e999}'), "bad_json"),
        (action_input('{"x": 1, "x": 2}'), "bad_json"),
        (action_input('{"x": "\\ud800"}'), "bad_json"),
        (action_input("[]"), "wrong_shape"),
        (action_input("null"), "wrong_shape"),
        (action_input('"x"'), "wrong_shape"),
        ("Action:\nAction Input: {}", "wrong_shape"),
        (f"Action: {'f' * 200}\nAction Input: {{}}", "wrong_shape"),
        (finish(), "wrong_shape"),
        (finish(return_type="give_answer"), "wrong_shape"),
        (finish(final_answer="x"), "wrong_shape"),
        (finish(return_type="give_answer", final_answer=["x"]), "wrong_shape"),
        (finish(return_type="give_up_and_restart", final_answer=None), "wrong_shape"),
        (finish(return_type="answer", final_answer="x"), "wrong_shape"),
        (finish(return_type=[], final_answer="x"), "wrong_shape"),
        (finish(return_type="give_answer", final_answer="x", why="y"), "wrong_shape"),
        (f"{ACTION}\n{finish(return_type='give_answer', final_answer='x')[11:]}", "both_actions"),
        (f"{finish(return_type='give_answer', final_answer='x')}\n{ACTION}", "both_actions"),
        ("\n".join([ACTION] * 41), "too_many_calls"),
        ("x" * 200_001, "too_long"),
        (action_input('{"a":' + "[" * 40 + "]" * 40 + "}"), "too_deep"),
        (action_input('{"a":' + "[" * 90_000), "too_deep"),
        (action_input('{"a": [' + "[]," * 20_000 + "0]}"), "too_long"),
    ],
}
CASES = [(name, text, error) for name, table in MALFORMED.items() for text, error in table]


@pytest.fixture(params=NAMES)
def protocol(request):
    return get_protocol(request.param)


def test_every_protocol_has_a_table_of_malformed_messages():
    assert sorted(MALFORMED) == NAMES


@pytest.mark.parametrize("docs", ["json", "signature"])
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_in_the_prompt_are_what_the_parser_reads(name, docs):
    check_examples(get_protocol(name, docs=docs))


def check_examples(protocol):
    prompt = protocol.system_prompt(load_scenarios("multi_turn_base")[0].functions(0))
    kinds = set()
    for example in protocol.examples():
        assert example in prompt
        parsed = protocol.parse(example)
        assert parsed.well_formed
        kinds.add("answer" if parsed.answer is not None else "calls")
    assert kinds == {"answer", "calls"}


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_documents_every_function_and_has_no_white_space_around_it(name):
    functions = load_scenarios("multi_turn_base")[0].functions(0)
    for docs in ("json", "signature"):
        prompt = get_protocol(name, docs=docs).system_prompt(functions)
        assert all(function["name"] in prompt for function in functions)
        assert prompt == prompt.strip(), "Llama's template would strip it, and prompt and tokens would differ"


@pytest.mark.parametrize(("name", "text", "error"), CASES)
def test_each_malformed_message_gets_its_typed_error_and_feedback(name, text, error):
    protocol = get_protocol(name)
    parsed = protocol.parse(text)
    assert parsed.error == error
    assert not parsed.well_formed and parsed.calls == () and parsed.answer is None
    (message,) = protocol.feedback(parsed)
    assert message["role"] == "user" and len(message["content"]) < 700
    assert "Format error: " in message["content"] and protocol.shape in message["content"]


def test_every_format_error_is_provoked_by_some_message_or_by_the_budget():
    assert {error for _, _, error in CASES} | {FormatError.truncated} == set(FormatError) == EXPLANATIONS.keys()


def test_feedback_for_a_well_formed_message_is_a_mistake_of_the_caller(protocol):
    with pytest.raises(ValueError, match="well-formed"):
        protocol.feedback(protocol.parse(protocol.examples()[0]))


def test_the_gold_calls_of_all_800_scenarios_parse_back(protocol):
    scenarios = load_scenarios()
    assert len(scenarios) == 800
    for scenario in scenarios:
        for turn in scenario.turns:
            if turn.gold:
                assert protocol.parse(protocol.render_calls("t", turn.gold)).calls == turn.gold
    assert protocol.parse(protocol.render_answer("done", "done")).answer == "done"


def test_gold_conversations_pass_every_turn(protocol):
    play_gold(protocol, load_scenarios()[::20])


@pytest.mark.slow
def test_all_800_gold_conversations_pass_every_turn(protocol):
    play_gold(protocol, load_scenarios())


def play_gold(protocol, scenarios):
    for scenario in scenarios:
        messages = gold_messages(scenario, protocol)  # raises where a turn does not pass
        written = [protocol.parse(message["content"]) for message in messages if message["role"] == "assistant"]
        gold = [turn.gold for turn in scenario.turns if turn.gold]
        assert [parsed.calls for parsed in written if parsed.calls] == gold


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (Call("fly_away", {}), "unknown_function"),
        (Call("cd", {"folder": 5}), "bad_arguments"),
        (Call("cd", {"path": "x"}), "bad_arguments"),
        (Call("cd", {}), "bad_arguments"),
        (Call("cd", {"folder": "nowhere"}), "result"),
    ],
)
def test_calls_that_fail_are_well_formed_and_bring_the_environments_error(protocol, call, error):
    with Conversation(load_scenarios("multi_turn_base")[0], protocol) as conversation:
        conversation.start()
        (message,) = conversation.reply(protocol.render_calls("t", [call])).messages
        (step,) = conversation.record().turns[0].steps
    assert step.well_formed and step.calls[0].error == error
    assert step.calls[0].result[:20].replace('"', "") in message["content"].replace("\\", "").replace('"', "")


def test_withheld_functions_are_announced_in_the_protocols_own_form(protocol):
    scenario = load_scenarios("multi_turn_miss_func")[0]
    (reveal,) = [number for number, turn in enumerate(scenario.turns) if turn.revealed]
    with Conversation(scenario, protocol) as conversation:
        messages = conversation.start()
        for _ in range(reveal):
            assert not any(f'"{scenario.turns[reveal].revealed[0]}"' in message["content"] for message in messages)
            messages = conversation.reply(protocol.render_answer("t", "done")).messages
    (message,) = messages
    documentation, sentence = message["content"].rsplit("\n", 1)
    assert message["role"] == "user" and sentence == REVEAL_SENTENCE
    line = next(line for line in documentation.splitlines() if line.startswith("{"))
    assert line in protocol.system_prompt(scenario.functions(reveal)), "documented as in the prompt"
    assert protocol.user_turn("Go on.") == [{"role": "user", "content": "Go on."}]


def test_results_come_in_one_message_in_the_order_of_the_calls(protocol):
    (message,) = protocol.results(["first", '{"a": 1}', "third"])
    content = message["content"]
    assert message["role"] == "user"
    assert content.index("first") < content.index('"a') < content.index("third")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
any_names = st.text(min_size=1, max_size=128)


def calls(names):
    arguments = st.dictionaries(names, json_values, max_size=3)
    return st.lists(st.builds(Call, name=names, arguments=arguments), min_size=1, max_size=5)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(made=calls(plain_names) | calls(any_names))
def test_whatever_is_rendered_parses_back(name, made):
    protocol = get_protocol(name)
    try:
        text = protocol.render_calls("t", made)
    except ValueError:
        return  # Python syntax cannot write such a name
    parsed = protocol.parse(text)
    assert parsed.error in (None, FormatError.too_deep)
    if parsed.well_formed:
        assert parsed.calls == tuple(made)


@cache
def messages_near(name):
    """Texts that look like what the protocol reads: pieces of its own messages, good and bad, put together wrongly."""
    protocol = get_protocol(name)
    good = [*protocol.examples(), protocol.render_calls("t", [Call("cd", {"folder": "x", "n": [1, None]})])]
    tokens = sorted({token for text in good for token in re.findall(r"</?\w+>|\w+|\W", text)})
    common = ["<think>", "</think>", "[", "]", "{", "}", "(", ")", '"', "'", "\\", "\n", "NaN", "=", "`", "#", "\ud800"]
    whole = good + [text for text, _ in MALFORMED.get(name, []) if len(text) < 200]
    pieces = st.lists(st.sampled_from(tokens + common + good) | st.text(max_size=5), max_size=20).map("".join)
    places = st.integers(0, 200)
    damaged = st.builds(
        lambda text, first, second, piece: text[: first % (len(text) + 1)] + piece + text[second % (len(text) + 1) :],
        st.sampled_from(whole),
        places,
        places,
        pieces | st.just(""),
    )
    return damaged | pieces | st.text()


class Watch:
    """Notices code that runs, imports, opened files and processes while `on`; audit hooks cannot be removed."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if self.on and event.startswith(("exec", "import", "open", "os.", "subprocess.", "socket.", "ctypes.")):
            self.seen.append(event)


watch = Watch()


def check_any_text(protocol, text):
    watch.on = True
    try:
        parsed = protocol.parse(text)
    finally:
        watch.on = False
    assert not watch.seen, "parsing runs nothing"
    assert (parsed.error is not None) + bool(parsed.calls) + (parsed.answer is not None) == 1
    for call in parsed.calls:
        json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
    if parsed.error is not None:
        protocol.feedback(parsed)


def test_the_watch_notices_code_that_runs():
    watch.on = True
    eval("1 + 1")
    watch.on = False
    assert watch.seen.pop() == "exec" and not watch.seen


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_text_makes_the_parser_raise_or_run_anything(name, data):
    check_any_text(get_protocol(name), data.draw(messages_near(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=20_000, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_none_of_20000_texts_makes_the_parser_raise_or_run_anything(name, data):
    check_any_text(get_protocol(name), data.draw(messages_near(name)))


def hostile(protocol, size):
    """Texts of `size` characters: one piece over and over, alone and as the content of the protocol's own call."""
    call = protocol.render_calls("", [Call("f", {"x": "@"})])
    before, _, after = call.partition(re.search(r"""["']@["']""", call)[0])
    units = sorted(
        {*re.findall(r"</?\w+>|\w+|\W", call), call, "[", "]", '{"', "{", "}", "((", '\\"', "''", "f(a=", "; "}
    )
    for unit in [
        *units,
        "<think>",
        "</think>",
        "<tool_response>",
        "1,",
        '{"a":',
        "- ",
        "[f(",
        '{"name":"',
        '","parameters":',
    ]:
        yield (unit * (size // len(unit) + 1))[:size]
        middle = size - len(before) - len(after)
        yield before + (unit * (middle // len(unit) + 1))[:middle] + after
        yield (call + unit * (size // len(unit) + 1))[:size]


def steps(protocol, text):
    """Function calls, of Python and of C, that parsing makes."""
    count = 0

    def tally(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tally)
    try:
        parsed = protocol.parse(text)
    finally:
        sys.setprofile(None)
    assert len(parsed.calls) <= protocol.max_calls
    return count


def test_hostile_texts_of_200000_characters_cost_no_more_than_in_proportion(protocol):
    shorter = hostile(protocol, PARSE_LIMIT // 4)
    for long, short in zip(hostile(protocol, PARSE_LIMIT), shorter, strict=True):
        assert steps(protocol, long) <= 5 * steps(protocol, short) + 200, long[:80]


def test_the_protocol_that_the_readme_writes_keeps_the_contract(tmp_path):
    (source,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    path = tmp_path / "my_format.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("interaction.protocol.my_format", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    protocol = module.MyFormat()
    check_examples(protocol)
    play_gold(protocol, load_scenarios()[::100])
    assert protocol.parse('x\nCALL {"name": "ls", "arguments": {}}').error == "text_outside"
    assert all(f"`{name}`" in README.read_text() for name in NAMES)
