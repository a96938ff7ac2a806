"""What a model may write, however bad, becomes a CallError or a typed result; nothing is ever evaluated.

Every input here is given while another episode is open, and must come to its end in a second, with an answer that can
be encoded, without a file written, a process started or a setting changed, and without effect on that episode.
"""

import decimal
import json
import os
import random
import re
import sys
import time
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bfcl_env import Call, CallError, Episode, ErrorKind, load_scenarios, make_call, parse_call, source
from bfcl_env.limits import MAX_CALLS

BASE = load_scenarios("multi_turn_base")
FILES = BASE[0]
MATH = next(item for item in BASE if "MathAPI" in item.classes)
MUST_NOT_HAPPEN = ("os.", "shutil.", "subprocess.", "socket.", "ctypes.", "exec", "import")
HARMLESS = ("os.listdir", "os.scandir")
WATCH = {"on": False, "seen": []}


@sys.addaudithook
def watch(event, arguments):
    """Python's own report of what runs; an audit hook cannot be removed, so it is switched."""
    if not WATCH["on"]:
        return
    if event == "open":
        if set(str(arguments[1])).intersection("wxa+") or (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            WATCH["seen"].append((event, arguments[0]))
    elif event.startswith(MUST_NOT_HAPPEN) and event not in HARMLESS:
        WATCH["seen"].append((event, arguments))


def settings_of_process():
    import mpmath

    return (
        mpmath.mp.prec,
        decimal.getcontext().prec,
        random.getstate(),
        dict(os.environ),
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        os.getcwd(),
    )


@contextmanager
def harmless():
    """Asserts that what happens inside is quick and changes nothing outside of its own episode."""
    import _strptime  # noqa: F401  (what is imported on first use is imported now)

    for class_name in source.CLASS_MODULES:
        source.load_class(class_name)
    for scenario in (FILES, MATH):
        with Episode(scenario) as episode:
            for turn in scenario.turns:
                for call in turn.gold:
                    episode.execute(call)
                episode.end_turn()
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

    checkers = dict(vars(multi_turn_checker)), dict(vars(multi_turn_utils))
    settings = settings_of_process()
    with Episode(FILES) as bystander:
        WATCH.update(on=True, seen=[])
        began = time.thread_time()
        try:
            yield
        finally:
            seconds = time.thread_time() - began
            WATCH["on"] = False
        assert seconds < 1.0
        assert WATCH["seen"] == []
        assert settings_of_process() == settings
        assert (dict(vars(multi_turn_checker)), dict(vars(multi_turn_utils))) == checkers
        for turn in FILES.turns:
            for call in turn.gold:
                bystander.execute(call)
            assert bystander.end_turn().passed


def execute(scenario, *calls):
    with harmless(), Episode(scenario) as episode:
        results = [episode.execute(call) for call in calls]
    for result in results:
        assert result.text.encode()
    return results


HOSTILE_TEXTS = [
    "",
    "   ",
    "ls",
    "[ls()]",
    "ls(); pwd()",
    "ls(), pwd()",
    "x = ls()",
    "import os",
    "lambda: ls()",
    "(exit)()()",
    "ls()()",
    "__import__('os').system('touch MARK')",
    "__import__('sys').exit(3)",
    "open(file='MARK', mode='w').close()",
    "cd(folder=__import__('os').system('touch MARK'))",
    "cd(folder=open('MARK', 'w'))",
    "cd(folder=str('a'))",
    "cd(folder=f'{1}')",
    "cd(folder='x' * 10**9)",
    "cd(folder=1 + 2)",
    "cd(folder=b'x')",
    "cd(folder=1j)",
    "cd(folder=...)",
    "cd(folder={1, 2})",
    "cd(folder=[x for x in (1, 2)])",
    "cd(folder=(lambda: 1)())",
    "cd(folder=not True)",
    "cd(folder=~1)",
    "cd(folder=--1)",
    "cd(folder=x)",
    "cd(folder='a', folder='b')",
    "cd(**{'folder': 'a'})",
    "cd(*['a'])",
    "cd(folder={**{}})",
    "cd(folder={[]: 1})",
    "().__class__.__bases__[0].__subclasses__()",
    "''.join(['a'])",
    "cd(folder='a'",
    "cd(folder=01)",
    "cd(folder='\ud800",
    "cd(folder=\x00)",
    "cd(folder=(yield))",
    "cd(folder=(a := 1))",
    "cd(folder=" + "[" * 150 + "]" * 150 + ")",
    "cd(folder=" + "[" * 5_000 + "]" * 5_000 + ")",
    "cd(folder=" + "-" * 20_000 + "1)",
    "cd" + ".a" * 20_000 + "()",
    "cd(folder=" + "9" * 5_000 + ")",
    "cd(folder=0x" + "f" * 5_000 + ")",
    "cd(folder='" + "x" * 60_000 + "')",
    "cd(folder=[" + "1," * 10_000 + "])",
    "cd(folder=[" + "1," * 20_000 + "])",
    "cd(folder='" + "x" * 10_000_000 + "')",
    "x" * 10_000_000,
    "(" * 300 + "ls" + ")" * 300,
    "cd(folder=" + "[" * 300 + "]" * 300 + ")",
    "cd(folder=" + "{'a': " * 300 + "1" + "}" * 300 + ")",
    "cd(folder=" + "cd(" * 300 + ")" * 300 + ")",
    "setattr(ls, '__code__', pwd.__code__)()",
    "__import__('bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker').state_checker.__code__",
    "globals().update(state_checker=lambda *a: {'valid': True}) or ls()",
    "ls.__func__.__globals__['x'](1)()",
    "cd(folder=exit())",
    "cd(folder=ls)",
    "cd(folder=await x)",
    "ls() if True else pwd()",
    "ls() and pwd()",
    "cd(folder=nan)",
    "{'name': 'ls'}",
    "<tool_call>ls()</tool_call>",
    "ls(\ud800=1)",
    "print(f'{__import__(\"os\").getcwd()}').x()",
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: repr(text[:40]))
def test_text_that_is_not_one_call_of_literals_is_a_call_error(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with harmless(), pytest.raises(CallError) as caught:
        parse_call(text.replace("MARK", "mark"), FILES)
    assert 10 < len(str(caught.value)) < 300 and str(caught.value).encode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "open(file='mark', mode='w')",
        "exec('x = 1')",
        "eval('1')",
        "print('x')",
        "exit()",
        "os.system('touch mark')",
        "self.ls()",
        "ls.__call__()",
        "__init__()",
        "__class__()",
        "_current_dir()",
        "root()",
        "_load_scenario({})",
        "deepcopy(x={})",
        "setattr(a='state_checker', b=1)",
        "state_checker.__code__.replace(co_code=1)",
        "multi_turn_checker.state_checker(1)",
        "vars(x=1)",
        "ls.__init__()",
        "_parse_positions('1-99999999999')",
    ],
)
def test_names_that_are_not_published_functions_are_unknown_and_do_nothing(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (result,) = execute(FILES, parse_call(text, FILES))
    assert result.error is ErrorKind.UNKNOWN_FUNCTION
    assert result.text.startswith("Error during execution: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("logarithm", {"value": 2, "base": 3, "precision": 100_000}),
        ("logarithm", {"value": 2, "base": 3, "precision": "100000"}),
        ("logarithm", {"value": 2, "base": 3, "precision": 1e12}),
        ("logarithm", {"value": 2, "base": 3, "precision": float("nan")}),
        ("logarithm", {"value": "1e999999999", "base": 3, "precision": 5}),
        ("logarithm", {"value": 2, "base": "1E999999999", "precision": 5}),
        ("logarithm", {"value": (1, 10**18), "base": 2, "precision": 5}),
        ("power", {"base": 9, "exponent": 99_999_999}),
        ("power", {"base": -9, "exponent": 10**30}),
        ("square_root", {"number": 2, "precision": 1_000_000}),
        ("square_root", {"number": 2, "precision": 10**18}),
        ("round_number", {"number": 5, "decimal_places": -99_999_999}),
        ("add", {"a": 10**2_000, "b": 1}),
        ("mean", {"numbers": [1] * 10_000}),
        ("mean", {"numbers": {1, 2}}),
        ("mean", {"numbers": object()}),
        ("mean", {"numbers": [1] * 20_000}),
        ("mean", {"numbers": "x" * 10_000_000}),
        ("x" * 10_000_000, {}),
        ("mean", {"x" * 10_000_000: 1}),
        ("square_root", {"number": 2, "precision": "1000000"}),
        ("square_root", {"number": 2, "precision": float("inf")}),
    ],
    ids=lambda value: re.sub("0x[0-9a-f]+", "0x", repr(value)[:40]),  # the same in every process
)
def test_arguments_that_would_hang_or_swamp_the_process_hit_a_limit(name, arguments):
    (result,) = execute(MATH, Call(name, arguments))
    assert result.error is ErrorKind.LIMIT


def test_limits_hold_for_positional_arguments_too():
    (result,) = execute(MATH, Call("power", {}, (9, 99_999_999)))
    assert result.error is ErrorKind.LIMIT


@pytest.mark.parametrize(
    "call",
    [
        Call("power", {"base": "9", "exponent": [1]}),
        Call("power", {"base": 2.0, "exponent": 1e308}),
        Call("power", {"base": 0, "exponent": -1}),
        Call("power", {"base": 2, "exponent": 20_000}),
        Call("mean", {"numbers": 5}),
        Call("mean", {"numbers": [1e308, 1e308, "x"]}),
        Call("mean", {"self": 1}),
        Call("mean", {"a b": 1, "": 2}),
        Call("logarithm", {"value": [1], "base": {}, "precision": None}),
        Call("", {}),
        Call("mean", None),
        Call("mean", [1]),
        Call(5, {}),
        Call("mean", {5: 1}),
        Call("__import__('os').system('x') or mean", {"numbers": [1]}),
        Call("mean", {"numbers=[1], x=__import__('os').system('x')": 1}),
        Call("mean", {"__class__": 1}),
        Call("mean", {"numbers": ["__import__('os').system('x')"]}),
        Call("mean", {"\ud800": 1}),
        Call("\ud800", {}),
        Call("mean\n", {"numbers": [1]}),
        Call("mean\x00", {"numbers": [1]}),
        Call("mean; exit", {}),
        Call("MEAN", {"numbers": [1]}),
        Call("sum_values", {"numbers": [[]] * 100}),
        Call("standard_deviation", {"numbers": [{}, []]}),
        Call("percentage", {"part": 1, "whole": 0}),
    ],
    ids=repr,
)
def test_faulty_calls_get_a_typed_error_and_raise_nothing(call):
    (result,) = execute(MATH, call)
    assert result.error is not None
    assert isinstance(result.text, str)


NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 2**3_999, -0.0, True]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: repr(number)[:9])
def test_numbers_at_the_edge_are_answered_by_every_function_of_numbers(number):
    calls = []
    for doc in MATH.functions(0):
        properties = doc["parameters"]["properties"]
        arguments = {key: [number, 1] if item["type"] == "array" else number for key, item in properties.items()}
        if any(item["type"] in ("array", "float", "integer") for item in properties.values()):
            calls.append(Call(doc["name"], arguments))
    assert len(calls) >= 17
    for result in execute(MATH, *calls):
        assert result.text


def test_every_string_argument_of_every_function_may_be_hostile():
    strings = [
        "../../etc/passwd",
        "\ud800",
        "\x00",
        "x" * 40_000,
        "{0.__class__}",
        "__import__('os').getcwd()",
        "\n" * 9,
    ]
    for class_name in source.CLASS_MODULES:
        scenario = next(item for item in BASE if class_name in item.classes)
        for string in strings:
            calls = []
            for doc in source.function_docs()[class_name].values():
                properties = doc["parameters"]["properties"]
                calls.append(Call(doc["name"], {key: string for key, item in properties.items()}))
                calls.append(Call(doc["name"], {key: [string] for key, item in properties.items()}))
            for result in execute(scenario, *calls):
                assert isinstance(result.text, str) and "root:" not in result.text


def test_a_directory_copied_into_itself_neither_hangs_nor_breaks_the_verdict():
    with harmless(), Episode(FILES) as episode:
        episode.execute(make_call("mkdir", {"dir_name": "d"}))
        episode.execute(make_call("cp", {"source": "d", "destination": "d"}))
        results = [episode.execute(make_call(name, {})) for name in ("find", "du", "ls", "pwd")]
        assert [result.error for result in results[:2]] == [ErrorKind.LIMIT, ErrorKind.LIMIT]
        for _ in FILES.turns:
            assert not episode.end_turn().passed


def test_a_tree_that_doubles_with_every_copy_is_stopped():
    with harmless(), Episode(FILES) as episode:
        episode.execute(make_call("mkdir", {"dir_name": "a0"}))
        errors = []
        for step in range(60):
            for name, arguments in (
                ("cp", {"source": f"a{step}", "destination": f"b{step}"}),
                ("mkdir", {"dir_name": f"a{step + 1}"}),
                ("mv", {"source": f"a{step}", "destination": f"a{step + 1}"}),
                ("mv", {"source": f"b{step}", "destination": f"a{step + 1}"}),
            ):
                errors.append(episode.execute(make_call(name, arguments)).error)
        assert ErrorKind.LIMIT in errors
        assert episode.execute(make_call("find", {})).error is ErrorKind.LIMIT
        assert not episode.end_turn().passed


def test_a_turn_without_gold_survives_a_state_that_cannot_be_copied():
    scenario = next(
        item
        for item in load_scenarios("multi_turn_miss_param")
        if "GorillaFileSystem" in item.classes and item.turns[0].gold and not item.turns[1].gold
    )
    with Episode(scenario) as episode:
        episode.execute(make_call("mkdir", {"dir_name": "d"}))
        episode.execute(make_call("cp", {"source": "d", "destination": "d"}))
        episode.end_turn()
        episode.execute(make_call("ls", {}))
        assert not episode.end_turn().passed


def test_the_number_of_calls_in_an_episode_is_bounded():
    with Episode(FILES) as episode:
        errors = [episode.execute(Call("ls", {})).error for _ in range(MAX_CALLS + 1)]
    assert errors == [None] * MAX_CALLS + [ErrorKind.LIMIT]


def test_there_are_more_than_sixty_hostile_inputs():
    assert len(HOSTILE_TEXTS) == len(set(HOSTILE_TEXTS)) > 60


@pytest.mark.parametrize("fault", [SystemExit(3), GeneratorExit(), MemoryError(), RecursionError("deep")])
def test_nothing_that_a_function_raises_escapes(fault, monkeypatch):
    from bfcl_env.source import load_class

    def ls(self):
        raise fault

    Episode(FILES).close()  # Gold must be known before the class is broken.
    monkeypatch.setattr(load_class("GorillaFileSystem"), "ls", ls)
    (result,) = execute(FILES, Call("ls", {}))
    assert (result.text, result.error) == (f"Error during execution: {fault}", ErrorKind.EXECUTION)


def test_an_overlong_result_is_cut_and_says_so(monkeypatch):
    from bfcl_env import execution

    Episode(FILES).close()
    monkeypatch.setattr(execution, "MAX_RESULT_CHARS", 10)
    with Episode(FILES) as episode:
        result = episode.execute(Call("ls", {}))
    assert result.error is ErrorKind.LIMIT and "[cut: the result has" in result.text


@given(st.text(max_size=300))
@example("cd(folder='a')")
@example("ls()#")
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_call_or_a_call_error(text):
    try:
        call = parse_call(text, FILES)
    except CallError:
        return
    assert isinstance(call, Call)


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
).filter(lambda value: "inf" not in repr(value))


@given(st.dictionaries(st.sampled_from(["folder", "a", "file_name", "path", "zzz"]), LITERALS, max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_call_written_as_text_reads_back_as_itself(arguments):
    call = make_call("cd", arguments)
    assert parse_call(str(call), FILES) == call


@given(
    name=st.sampled_from(sorted(FILES.visible(0))),
    arguments=st.dictionaries(
        st.sampled_from(["folder", "file_name", "dir_name", "source", "destination", "path", "name", "lines", "a"]),
        LITERALS | st.sampled_from(["workspace", "document", "archive", "..", "/", "."]),
        max_size=3,
    ),
)
@settings(max_examples=300, deadline=None)
def test_no_call_makes_the_environment_raise(name, arguments):
    with Episode(FILES, augment=True) as episode:
        result = episode.execute(Call(name, arguments))
        assert isinstance(result.text, str)
        episode.end_turn()


@pytest.mark.parametrize("text", ["../x", "__import__('os')", "{0.__class__}", "%s%s", "é😀\u0000"])
def test_strange_strings_stay_strings(text):
    result = execute(FILES, make_call("echo", {"content": text}))[0]
    assert json.loads(result.text) == {"terminal_output": text}
