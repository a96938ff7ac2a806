"""What a model may write, however bad, becomes a CallError or a typed result; nothing is ever evaluated.

Every input here is given while another episode is open, and must come to its end in a second, with an answer that can
be encoded, without a file written, a process started or a setting changed, and without effect on that episode.
"""

import decimal
import os
import random
import sys
import time
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from bfcl_env import Call, CallError, Episode, ErrorKind, execution, load_scenarios, make_call, parse_call, source
from bfcl_env.limits import MAX_CALLS

PLACES = st.sampled_from(["workspace", "document", "archive", "..", "/", "."])
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
).filter(lambda value: "inf" not in repr(value))
KEYS = st.sampled_from(["folder", "file_name", "dir_name", "source", "destination", "path", "name", "lines", "a"])
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

    numbers = mpmath.mp.prec, decimal.getcontext().prec, sys.getrecursionlimit(), sys.getswitchinterval()
    return *numbers, random.getstate(), dict(os.environ), os.getcwd()


@contextmanager
def harmless(seconds=1.0):
    """Asserts that what happens inside is quick and changes nothing outside of its own episode."""
    import _strptime  # noqa: F401  (what is imported on first use is imported now)

    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

    def gold(episode):
        for turn in episode.scenario.turns:
            for call in turn.gold:
                episode.execute(call)
            assert episode.end_turn().passed

    for class_name in source.CLASS_MODULES:
        source.load_class(class_name)
    gold(Episode(FILES))
    gold(Episode(MATH))
    checkers = dict(vars(multi_turn_checker)), dict(vars(multi_turn_utils))
    before = settings_of_process()
    with Episode(FILES) as bystander:
        WATCH.update(on=True, seen=[])
        began = time.thread_time()
        try:
            yield
        finally:
            WATCH["on"] = False
        assert time.thread_time() - began < seconds
        assert WATCH["seen"] == [] and settings_of_process() == before
        assert (dict(vars(multi_turn_checker)), dict(vars(multi_turn_utils))) == checkers
        gold(bystander)


def execute(scenario, *calls):
    with harmless(), Episode(scenario) as episode:
        results = [episode.execute(call) for call in calls]
        episode.end_turn()
    assert all([result.text.encode() is not None for result in results])
    return results


NO_CALLS = [
    *("", "ls", "[ls()]", "ls(); pwd()", "ls(), pwd()", "x = ls()", "import os", "lambda: ls()", "ls()()"),
    *("cd(folder=str('a'))", "cd(folder=f'{1}')", "cd(folder='x' * 10**9)", "cd(folder=b'x')", "cd(folder={1, 2})"),
    *("cd(folder=[x for x in (1, 2)])", "cd(folder=(lambda: 1)())", "cd(folder=~1)", "cd(folder=x)", "cd(*['a'])"),
    *("cd(folder='a', folder='b')", "cd(**{'folder': 'a'})", "cd(folder={**{}})", "cd(folder={[]: 1})"),
    *("cd(folder='a'", "cd(folder=01)", "cd(folder='\ud800", "cd(folder=\x00)", "ls(\ud800=1)", "cd(folder=nan)"),
    *("cd(folder=(yield))", "cd(folder=(a := 1))", "ls() if True else pwd()", "<tool_call>ls()</tool_call>"),
    "__import__('os').system('touch mark')",
    "cd(folder=open('mark', 'w'))",
    "().__class__.__bases__[0].__subclasses__()",
    "cd(folder=" + "[" * 5_000 + "]" * 5_000 + ")",
    "cd(folder=" + "-" * 20_000 + "1)",
    "cd" + ".a" * 20_000 + "()",
    "cd(folder=" + "9" * 5_000 + ")",
    "cd(folder='" + "x" * 60_000 + "')",
    "cd(folder=[" + "1," * 10_000 + "])",
    "x" * 10_000_000,
    "cd(folder=" + "{'a': " * 300 + "1" + "}" * 300 + ")",
    "globals().update(state_checker=lambda *a: {'valid': True}) or ls()",
]
UNKNOWN = [
    *("open(file='mark', mode='w')", "exec('x = 1')", "eval('1')", "exit()", "os.system('touch mark')", "self.ls()"),
    *("ls.__call__()", "__init__()", "_current_dir()", "root()", "_load_scenario({})", "setattr(a='root', b=1)"),
    *("state_checker.__code__.replace(co_code=1)", "multi_turn_checker.state_checker(1)", "_parse_positions('1-9')"),
]


def test_text_that_is_not_one_call_of_literals_is_a_call_error_and_no_other_name_is_reached(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed = []
    with harmless(3.0):
        for text in NO_CALLS:
            try:
                failed.append((text[:40], parse_call(text, FILES)))
            except CallError as error:
                if not 10 < len(str(error)) < 300 or not str(error).encode():
                    failed.append((text[:40], error))
    for text, result in zip(UNKNOWN, execute(FILES, *(parse_call(text, FILES) for text in UNKNOWN)), strict=True):
        if result.error is not ErrorKind.UNKNOWN_FUNCTION or not result.text.startswith("Error during execution: "):
            failed.append((text, result))
    assert not failed and list(tmp_path.iterdir()) == []


def test_arguments_that_would_hang_or_swamp_the_process_hit_a_limit():
    calls = [
        *(Call("logarithm", {"value": 2, "base": 3, "precision": value}) for value in ("100000", 1e12, float("nan"))),
        *(Call("logarithm", {"value": value, "base": 3, "precision": 5}) for value in ("1e999999999", (1, 10**18))),
        *(Call("power", {"base": 9, "exponent": 99_999_999}), Call("power", {}, (-9, 10**30))),
        *(Call("square_root", {"number": 2, "precision": value}) for value in (10**6, "1000000", float("inf"))),
        Call("round_number", {"number": 5, "decimal_places": -99_999_999}),
        Call("add", {"a": 10**2_000, "b": 1}),
        *(Call("mean", {"numbers": value}) for value in ([1] * 10_000, {1, 2}, object(), "x" * 10_000_000)),
        Call("x" * 10_000_000, {}),
        Call("mean", {"x" * 10_000_000: 1}),
    ]
    results = execute(MATH, *calls)
    assert [str(call)[:80] for call, found in zip(calls, results, strict=True) if found.error != ErrorKind.LIMIT] == []


def test_every_argument_of_every_function_may_be_hostile():
    numbers = [float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 2**3_999, -0.0, True]
    strings = ["../../etc/passwd", "\ud800", "\x00", "x" * 40_000, "{0.__class__}", "__import__('os').getcwd()"]
    for class_name in source.CLASS_MODULES:
        scenario = next(item for item in BASE if class_name in item.classes)
        for value in [*strings, *numbers]:
            calls = []
            for doc in source.function_docs()[class_name].values():
                properties = doc["parameters"]["properties"]
                calls.append(Call(doc["name"], dict.fromkeys(properties, value)))
                calls.append(Call(doc["name"], {key: [value, 1] for key in properties}))
            for result in execute(scenario, *calls):
                assert isinstance(result.text, str) and "root:" not in result.text


def test_file_trees_that_grow_without_end_are_stopped():
    into_itself = Call("mkdir", {"dir_name": "d"}), Call("cp", {"source": "d", "destination": "d"})
    for name in ("find", "du"):
        assert execute(FILES, *into_itself, Call(name, {}), Call("ls", {}))[2].error is ErrorKind.LIMIT
    doubled = [Call("mkdir", {"dir_name": "a0"})]
    for step in range(24):
        here, copy, there = f"a{step}", f"b{step}", f"a{step + 1}"
        doubled += [Call("cp", {"source": here, "destination": copy}), Call("mkdir", {"dir_name": there})]
        doubled += [Call("mv", {"source": name, "destination": there}) for name in (here, copy)]
    assert execute(FILES, *doubled, Call("find", {}))[-1].error is ErrorKind.LIMIT
    asking = [item for item in load_scenarios("multi_turn_miss_param") if "GorillaFileSystem" in item.classes]
    scenario = next(item for item in asking if item.turns[0].gold and not item.turns[1].gold)
    with Episode(scenario) as episode:  # its turn without gold has to compare with a state that cannot be copied
        for call in into_itself:
            episode.execute(call)
        assert not episode.end_turn().passed
        episode.execute(Call("ls", {}))
        assert not episode.end_turn().passed


def test_calls_are_counted_and_long_results_cut(monkeypatch):
    with Episode(FILES) as episode:
        results = [episode.execute(Call("ls", {})) for _ in range(MAX_CALLS + 1)]
    assert [result.error for result in results] == [None] * MAX_CALLS + [ErrorKind.LIMIT]
    whole = results[0].text
    for room in (len(whole), len(whole) - 1):
        monkeypatch.setattr(execution, "MAX_RESULT_CHARS", room)
        with Episode(FILES) as episode:
            result = episode.execute(Call("ls", {}))
        cut = (f"{whole[:room]} [cut: the result has {len(whole)} characters]", ErrorKind.LIMIT)
        assert (result.text, result.error) == ((whole, None) if room == len(whole) else cut)


def test_nothing_that_a_function_raises_escapes_and_what_is_no_json_is_shown(monkeypatch):
    faults = SystemExit(3), GeneratorExit(), MemoryError(), RecursionError("deep"), KeyError(10**5_000)
    for fault, said in zip(faults, ("3", "", "", "deep", "KeyError"), strict=True):

        def ls(self, fault=fault):
            raise fault

        with monkeypatch.context() as patch:
            patch.setattr(source.load_class("GorillaFileSystem"), "ls", ls)
            with Episode(FILES) as episode:
                result = episode.execute(Call("ls", {}))
        assert (result.text, result.error) == (f"Error during execution: {said}", ErrorKind.EXECUTION)
    with Episode(MATH) as episode:
        assert episode.execute(Call("power", {"base": -8, "exponent": 0.5})).text == str({"result": (-8) ** 0.5})


@given(st.sampled_from(sorted(FILES.visible(0))), st.dictionaries(KEYS, LITERALS | PLACES, max_size=3))
@settings(max_examples=300, deadline=None)
def test_no_call_raises_and_one_written_as_text_reads_back_as_itself(name, arguments):
    call = make_call(name, arguments)
    assert parse_call(str(call), FILES) == call
    with Episode(FILES, augment=True) as episode:
        assert isinstance(episode.execute(call).text, str)
        episode.end_turn()
