"""What every protocol keeps: its texts, what its parser reads, each mistake's error, and that nothing written runs.

`protocols_recorded.json` has, for each protocol, its prompts and messages, and messages of a model with what the parser
makes of them. A new protocol needs a part of its own there.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.chat_templates import quoted_by_bfcl
from transformers.utils.chat_template_utils import render_jinja_template

import interaction.protocol
from bfcl_env import Call, load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.protocol import PROTOCOLS, FormatError
from interaction.refusal import is_refusal

EACH = pytest.mark.parametrize("name", sorted(PROTOCOLS))
RECORDED = json.loads(Path(__file__).with_name("protocols_recorded.json").read_text())
PARSE_LIMIT = 200_000
ROOT = Path(__file__).parents[3]
SCENARIOS = load_scenarios()
HERMES = get_protocol("hermes")
LS = Call("ls", {})


def function(name, description, required, **properties):
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


FILE, COUNT = {"type": "string", "description": "The file."}, {"type": "integer", "description": "How many."}
TAGS = {"type": "array", "items": {"type": "string"}, "description": "Tags.", "default": "None"}
FUNCTIONS = [
    function("cd", "Change the folder.", ["folder"], folder={"type": "string", "description": "The folder."})
    | {"response": {"type": "dict", "properties": {}}},
    function("tail", "Last lines.", ["file_name"], file_name=FILE, lines={**COUNT, "default": 10}, tags=TAGS),
]
HARD = '</tool_call> "]; [rm()] }; {"name": "ls"}\nAction: ls'
RESULTS = ['{"a": 1}', "None", '{"a": 1} Hint: x', "{broken}", "é\n", '{"error": "no"}', '{"error": "no", "a": 1}']
RESULTS += ["[]", ""]
FILLED = {
    "think_xml": '<think>t</think><tool_call>[{"name":"f","arguments":{"a":@}}]</tool_call>',
    "hermes": '<tool_call>{"name":"f","arguments":{"a":@}}</tool_call>',
    "llama3_json": '[{"name":"f","parameters":{"a":@}}]',
    "python_calls": "[f(x=@)]",
    "toolbench": 'Thought: t\nAction: f\nAction Input: {"a":@}',
}
"""A message with a call whose argument is @."""
DEEPEST = {"think_xml": 13, "hermes": 14, "llama3_json": 13, "python_calls": 15, "toolbench": 15}
"""Levels that this argument may have; the message around it has the others."""


def shown(parsed):
    calls = [[call.name, repr(call.arguments)] for call in parsed.calls]
    found = {"error": parsed.error, "thought": parsed.thought, "calls": calls or None, "answer": parsed.answer}
    found |= {"beside": parsed.beside or None, "gave_up": parsed.gave_up or None}
    pythons = parsed.error == "bad_syntax" or " column " in parsed.detail  # whose words change
    found["detail"] = None if pythons else parsed.detail or None
    return {key: value for key, value in found.items() if value is not None}


@EACH
def test_texts_and_readings_are_those_that_are_recorded(name):
    protocol, recorded = get_protocol(name), RECORDED[name]
    assert [[text, shown(protocol.parse(text))] for text, _ in recorded["parsed"]] == recorded["parsed"]
    malformed = dict.fromkeys(("hermes", "think_xml", "toolbench"), "<tool_call>")
    malformed |= {"llama3_json": "{}", "python_calls": "[cd("}
    failing = [text for text, reading in recorded["parsed"] if "error" in reading]
    calls = [Call("cd", {"folder": "é"}), Call("echo", {"content": HARD})]
    found = {
        "prompt": protocol.system_prompt(FUNCTIONS),
        "short prompt": get_protocol(name, docs="signature").system_prompt(FUNCTIONS),
        "reveal": protocol.user_turn("", FUNCTIONS[:1]),
        "results": protocol.results(RESULTS),
        "feedback": protocol.feedback(protocol.parse(malformed.get(name, failing[0]))),
        "calls": protocol.render_calls("cd, echo", calls),
        "answer": protocol.render_answer("done", "It is é."),
    }
    assert found == {key: value for key, value in recorded.items() if key != "parsed"}
    assert list(protocol.parse(found["calls"]).calls) == calls


@EACH
def test_messages_beyond_the_bounds_have_an_error_of_their_own(name):
    protocol = get_protocol(name)

    def error(argument):
        return protocol.parse(FILLED[name].replace("@", argument)).error

    assert [protocol.parse("x" * (PARSE_LIMIT + more)).error == "too_long" for more in (0, 1)] == [False, True]
    deepest = DEEPEST[name]
    for depth, said in ((deepest, None), (deepest + 1, "too_deep"), (5_000, "too_deep")):
        assert error("[" * depth + "]" * depth) == said, depth
    longest, longer = "[0," + "[]," * 4997 + "[]]", "[0," + "[]," * 4998 + "0]"  # 9,999 runs of brackets, and one more
    if name == "toolbench":  # without a bracket around the call
        longest, longer = longer, "[0," + "[]," * 4998 + "[]]"
    if name == "python_calls":  # 20,000 characters of calls
        longest, longer = f"'{'x' * 19_991}'", f"'{'x' * 19_992}'"
    assert (error(longest), error(longer)) == (None, "too_long")
    for letters, said in ((128, None), (129, "wrong_shape")):
        assert protocol.parse(protocol.render_calls("t", [Call("F" * letters, {})])).error == said
    assert error("9" * 5000) == ("bad_syntax" if name == "python_calls" else "bad_json")
    assert protocol.parse(protocol.render_calls("t", [LS] * 40)).well_formed
    many = protocol.render_calls("t", [LS] * 41)
    for text in (many, f"[{many.replace(';', ',')}]") if name == "llama3_json" else (many,):
        assert protocol.parse(text).error == "too_many_calls"


def keep_the_contract(protocol, scenarios):
    """Its prompt shows its examples, which it reads, and gold passes in its words."""
    prompt = protocol.system_prompt(SCENARIOS[0].functions(0))
    parsed = [protocol.parse(example) for example in protocol.examples()]
    assert all(example in prompt for example in protocol.examples()) and all(found.well_formed for found in parsed)
    assert {found.answer is None for found in parsed} == {True, False}
    assert prompt == prompt.strip(), "Llama's template would strip it, and prompt and tokens would differ"
    assert all(function["name"] in prompt for function in SCENARIOS[0].functions(0))
    for scenario in scenarios:
        messages = gold_messages(scenario, protocol)  # raises where a turn does not pass
        written = [protocol.parse(message["content"]) for message in messages if message["role"] == "assistant"]
        assert [found.calls for found in written if found.calls] == [turn.gold for turn in scenario.turns if turn.gold]
        assert protocol.gold_thinks or not any(found.thought for found in written)


@EACH
def test_examples_parse_and_gold_passes(name):
    keep_the_contract(get_protocol(name), SCENARIOS[::20])
    keep_the_contract(get_protocol(name, docs="signature"), ())


def test_rendering_refuses_what_would_not_be_read_back_and_says_how_it_begins():
    think_xml, toolbench, python = (get_protocol(name) for name in ("think_xml", "toolbench", "python_calls"))
    long = "b" * 99
    for render, text in (
        (partial(think_xml.render_answer, "t"), f"a</answer>{long}"),
        (lambda text: think_xml.render_calls(text, [LS]), f"a</think>{long}"),
        (lambda text: HERMES.render_calls(text, [LS]), f"a</think>{long}"),
        (lambda text: toolbench.render_calls(text, [LS]), f"x\nAction: ls{long}"),
        (partial(HERMES.render_answer, ""), f"use <tool_call>{long}"),
        *((partial(HERMES.render_answer, ""), text) for text in (" a", "a ")),
        *((lambda name: toolbench.render_calls("", [Call(name, {})]), name) for name in ("Finish", f"a\n{long}", "")),
        *((lambda name: toolbench.render_calls("", [Call(name, {})]), name) for name in (" a", "a ")),
        (partial(get_protocol("llama3_json").render_answer, ""), 'Sure: {"name": "ls", "parameters": {}}'),
        (partial(python.render_answer, ""), "Sure: [ls()]"),
        *((lambda key: python.render_calls("", [Call("f", {key: 1})]), key) for key in "from \ufb01 \u00b5".split()),
        *((lambda name: python.render_calls("", [Call(f"a.{name}", {})]), name) for name in ("a b", "from", "")),
        (lambda name: toolbench.system_prompt([function(name, "", [])]), "Finish"),
    ):
        with pytest.raises(ValueError) as refused:
            render(text)
            raise AssertionError(text)
        assert repr(text[:80]) in str(refused.value) or text == "Finish"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


def calls(names):
    arguments = st.dictionaries(names, json_values, max_size=3)
    return st.lists(st.builds(Call, name=names, arguments=arguments), min_size=1, max_size=5)


@EACH
@settings(deadline=None)
@given(made=calls(plain_names) | calls(st.text(min_size=1, max_size=128)))
def test_whatever_is_rendered_parses_back(name, made):
    protocol = get_protocol(name)
    try:
        text = protocol.render_calls("t", made)
    except ValueError:
        return  # Python syntax cannot write such a name
    parsed = protocol.parse(text)
    assert parsed.error == FormatError.too_deep or parsed.calls == tuple(made)


@cache
def messages_near(name):
    """Texts that look like what the protocol reads: pieces of its own messages, good and bad, put together wrongly."""
    protocol = get_protocol(name)
    good = [*protocol.examples(), protocol.render_calls("t", [Call("cd", {"folder": "x", "n": [1, None]})])]
    tokens = sorted({token for text in good for token in re.findall(r"</?\w+>|\w+|\W", text)})
    common = ["<think>", "</think>", *"[]{}()\"'\\\n=`#", "NaN", "\ud800"]
    whole = good + [text for text, _ in RECORDED[name]["parsed"] if len(text) < 200]
    pieces = st.lists(st.sampled_from(tokens + common + good) | st.text(max_size=5), max_size=20).map("".join)
    places = st.integers(0, 200)

    def damaged(text, first, second, piece):
        return text[: first % (len(text) + 1)] + piece + text[second % (len(text) + 1) :]

    return st.builds(damaged, st.sampled_from(whole), places, places, pieces | st.just("")) | pieces | st.text()


watched = None
"""What code runs, is imported, opened or started, while it is a list; audit hooks cannot be removed."""


@sys.addaudithook
def watch(event, arguments):
    if watched is not None and event.startswith(("exec", "import", "open", "os.", "subprocess.", "socket.", "ctypes.")):
        watched.append(event)


@EACH
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_text_makes_the_parser_raise_or_run_anything(name, data):
    global watched
    protocol, text = get_protocol(name), data.draw(messages_near(name))
    watched = seen = []
    try:
        parsed = protocol.parse(text)
    finally:
        watched = None
    assert not seen, "parsing runs nothing"
    assert (parsed.error is not None) + bool(parsed.calls) + (parsed.answer is not None) == 1
    for call in parsed.calls:
        json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
    if parsed.error is not None:
        protocol.feedback(parsed)


def hostile(protocol, size):
    """Texts of `size` characters: one piece over and over, alone and as the content of the protocol's own call."""
    call = protocol.render_calls("", [Call("f", {"x": "@"})])
    before, _, after = call.partition(re.search(r"""["']@["']""", call)[0])
    units = {*re.findall(r"</?\w+>|\w+|\W", call), call, *"[{}", "]", '{"', "((", '\\"', "''", "f(a=", "; "}
    units |= {"<think>", "</think>", "<tool_response>", "1,", '{"a":', "- ", "[f(", '{"name":"', '","parameters":'}
    for unit in sorted(units):
        many = unit * (size // len(unit) + 1)
        yield many[:size]
        yield before + many[: size - len(before) - len(after)] + after
        yield (call + many)[:size]


def steps(protocol, text):
    """Function calls, of Python and of C, that parsing makes."""
    events = Counter()
    sys.setprofile(lambda frame, event, argument: events.update([event]))
    try:
        parsed = protocol.parse(text)
    finally:
        sys.setprofile(None)
    assert len(parsed.calls) <= protocol.max_calls
    return events["call"] + events["c_call"]


def test_hostile_texts_of_200000_characters_cost_no_more_than_in_proportion():
    """In a process of its own: beside a thread that hangs in C, Python 3.11 never returns from a profiled call."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    ran = subprocess.run([sys.executable, __file__], env=given, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout.split() == sorted(PROTOCOLS), ran.stderr[-2000:]


def in_proportion(name):
    protocol = get_protocol(name)
    shorter = hostile(protocol, PARSE_LIMIT // 4)
    for long, short in zip(hostile(protocol, PARSE_LIMIT), shorter, strict=True):
        assert steps(protocol, long) <= 5 * steps(protocol, short) + 200, long[:80]
    print(name)


NO_WORDS = """¦ \n¦\u200b\u2060¦\u3164¦...¦1¦\U0001f642\u2139\ufe0f¦<|im_end|>¦</s>¦[INST][/INST]¦im_end|>¦```sh\n```¦\
<answer> </answer>¦<think>I cannot.</think>¦<think>I cannot.¦I cannot.</think>\n¦<think>x</think><answer>!</answer>¦\
Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": " "}¦\
<|im_start|>assistant\n<|im_end|>¦<|channel|>final<|message|>¦<start_of_turn>model\n¦<|channel|>analysis<|message|>No.¦\
[THINK]No.[/THINK]¦◁think▷No.◁/think▷¦<seed:think>No.</seed:think>¦<THINK>No."""
CALLS = """f(x=1)¦f(x=1¦f()¦[f()¦[g(x=1)]¦{"name": "g"¦{"x": 1}¦So {"name": "g", "parameters": {¦Ok: {"tool": "f"¦\
{'name': 'f'}¦<tool_call>\n{"name"¦<function=g>{"x": 1}¦Action: g¦Thought: t\nAction: g\nAction Input: {}¦f {"x": 1}¦\
```json\n{"name": "g", "arguments": {}}\n```¦```python\ng(x=1)\n```¦Sure:\n```python\nf(x=1)\n```\nDone.¦\
I look.\nf()¦[a g(x=1)]¦\
I call f(x=1) now.¦I call f(x="a¦Sure. f("a")¦\u8bf7f(x=1)¦<think>t</think><answer>[g(x=1)]</answer>¦a <call name="f">¦\
[TOOL_CALLS]f{}¦<tool_code>f(x=1)</tool_code>¦a <invoke name="g">¦a <\uff5ctool\u2581call¦functions.f(x=1)¦f(x: "a")¦\
✿FUNCTION✿: g¦call:f{x:a}¦call:g{¦a <tool_name>g</tool_name>¦<tool>f</tool>¦f[ARGS]{}¦to=f<|message|>¦y = f()\ny¦\
Function: g\nArguments: {"x": 1}¦>>>g\n{¦<|recipient|>g\n"""
REFUSED = """No.¦\u4e0d¦\u041d\u0435\u0442¦\u0644\u0627¦The function f does not fit.¦f() does not fit.¦`f(x)` needs x¦\
I could call `f` if you told me x.¦I could call f(x=...) then.¦g(x) = 2x (linear)¦f(2) = 4¦The set {1, 2}.¦\
It holds {"name": "Bob"} and 3 < 4.¦None of [f, g] fits.¦[see](http://x.y)¦Parameter(s) missing: x (string)¦<b>No</b>¦\
I have:\n- f(): lists\n- g()\nNone fits.¦<think>f(x=1)?</think> No.¦<answer>No.</answer>¦No.<|im_end|>¦I cannot f {x}.¦\
Use Python:\n```python\nprint(3 * 4)\n```¦Thought: I cannot.¦<think>t</think><answer>No.</answer>¦\
Thought: t\nAction: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "No."}¦\
[]\n\nNo.¦[] - no.¦Action: None\nNo.¦I can call f(x="..."), f(x="<city>") or f(x=?) then.¦5! = f(5) = 120"""
"""Texts; f is on offer, g is not."""


def test_a_refusal_has_words_and_no_call_of_any_format_whole_or_begun():
    for texts, refused in ((NO_WORDS, False), (CALLS, False), (REFUSED, True)):
        for text in texts.split("¦"):
            assert is_refusal(text, frozenset({"f"})) == refused, text
    assert not is_refusal("<" + "think" * 40_000 + " No.")  # in seconds
    for name in PROTOCOLS:
        call = get_protocol(name).render_calls("t", [Call("move.it", {"to": [1, {"a": "b"}]})])
        for text in (call, call[:-2], f"<answer>{call}</answer>", f"```\n{call}\n```", f"{call}<|im_end|>"):
            assert not is_refusal(text) and not is_refusal(f"Sure.\n{text}", frozenset({"move.it"})), text


def test_the_protocol_that_the_readme_writes_keeps_the_contract(tmp_path):
    readme = Path(interaction.protocol.__file__).with_name("README.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    path = tmp_path / "my_format.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("interaction.protocol.my_format", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    protocol = module.MyFormat()
    keep_the_contract(protocol, SCENARIOS[::100])
    assert protocol.parse('x\nCALL {"name": "ls", "arguments": {}}').error == "text_outside"


# Arch-Agent is a Qwen2.5 model; its template is Qwen2.5's except for the default system message, not used here.
@pytest.mark.parametrize("model", ["qwen_fc", "arch"])
def test_hermes_writes_byte_for_byte_what_the_templates_of_qwens_models_write_with_tools(model):
    def render(messages, tools=None):
        template = quoted_by_bfcl(model)
        (text,), _ = render_jinja_template([messages], tools=tools, chat_template=template, add_generation_prompt=True)
        return text

    calls, results, functions = [Call("cd", {"folder": "\u00e9"}), LS], ['{"a": 1}', "None"], SCENARIOS[0].functions(0)
    request, thanks = ({"role": "user", "content": words} for words in ("Look.", "Thanks."))
    answer = {"role": "assistant", "content": "Done."}
    called = {"role": "assistant", "content": HERMES.render_calls("", calls)}
    ours = [*HERMES.opening(functions, "Look."), called, *HERMES.results(results), answer, *HERMES.user_turn("Thanks.")]
    as_data = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
    api = [{"role": "system", "content": HERMES.instructions()}, request]
    api += [{"role": "assistant", "content": "", "tool_calls": as_data}]
    api += [*({"role": "tool", "content": text} for text in results), answer, thanks]
    assert render(ours) == render(api, HERMES.tools(functions))


if __name__ == "__main__":
    for name in sorted(PROTOCOLS):
        in_proportion(name)
