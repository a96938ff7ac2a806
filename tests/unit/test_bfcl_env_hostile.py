"""What a model may write, however bad, becomes a CallError or a typed result; nothing is ever evaluated."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bfcl_env import Call, CallError, Episode, ErrorKind, load_scenarios, make_call, parse_call, train_indices
from bfcl_env.limits import MAX_CALLS

BASE = load_scenarios("multi_turn_base")
FILES = BASE[0]
MATH = next(item for item in BASE if "MathAPI" in item.classes)


def execute(scenario, *calls):
    with Episode(scenario) as episode:
        return [episode.execute(call) for call in calls]


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
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: repr(text[:40]))
def test_text_that_is_not_one_call_of_literals_is_a_call_error(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallError):
        parse_call(text.replace("MARK", "mark"), FILES)
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
    ],
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
    ],
    ids=repr,
)
def test_faulty_calls_get_a_typed_error_and_raise_nothing(call):
    (result,) = execute(MATH, call)
    assert result.error is not None
    assert isinstance(result.text, str)


def test_a_directory_copied_into_itself_neither_hangs_nor_breaks_the_verdict():
    with Episode(FILES) as episode:
        episode.execute(make_call("mkdir", {"dir_name": "d"}))
        episode.execute(make_call("cp", {"source": "d", "destination": "d"}))
        results = [episode.execute(make_call(name, {})) for name in ("find", "du", "ls", "pwd")]
        assert [result.error for result in results[:2]] == [ErrorKind.LIMIT, ErrorKind.LIMIT]
        for _ in FILES.turns:
            assert not episode.end_turn().passed


def test_a_tree_that_doubles_with_every_copy_is_stopped():
    with Episode(FILES) as episode:
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
    (result,) = execute(FILES, Call("ls", {}))
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
    import json

    assert json.loads(result.text) == {"terminal_output": text}


def test_the_training_split_is_not_touched_by_any_of_this():
    assert len(train_indices()) == 100
