"""What no model should be able to do: raise, or take long. Times are of the process, with room for a slow machine."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.single_turn import tasks

from bfcl_env.single_turn import java, javascript
from bfcl_env.single_turn.checker import MAX_CALLS, check_calls
from bfcl_env.single_turn.matching import unmatched, unmatched_greedily
from interaction.call import MAX_CHARS, Call

SECOND = 1.0
MEGABYTES = 10_000_000


def seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def deep(levels: int, wrap) -> object:
    value: object = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def judged(calls, type_="string", language="python", accepted=("km", ""), items="string"):
    properties = {"a": {"type": type_, "items": {"type": items}}}
    document = {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["a"]}}
    answers = [{"f": {"a": list(accepted)}}] * len(calls)
    return check_calls(calls, [document], answers, language, parallel=len(calls) > 1)


HUGE = {
    "one text": lambda: [Call("f", {"a": "a" * MEGABYTES})],
    "one text of what is ignored": lambda: [Call("f", {"a": " ," * (MEGABYTES // 2)})],
    "a wide list": lambda: [Call("f", {"a": [0] * (MEGABYTES // 2)})],
    "a deep list": lambda: [Call("f", {"a": deep(MEGABYTES // 100, lambda value: [value])})],
    "a deep object": lambda: [Call("f", {"a": deep(MEGABYTES // 100, lambda value: {"a": value})})],
    "a wide object": lambda: [Call("f", {"a": {str(number): number for number in range(MEGABYTES // 20)}})],
    "a long name": lambda: [Call("f" * MEGABYTES, {"a": "km"})],
    "a long argument name": lambda: [Call("f", {"a" * MEGABYTES: "km"})],
    "many arguments": lambda: [Call("f", {str(number): "km" for number in range(MEGABYTES // 20)})],
    "a long number": lambda: [Call("f", {"a": 1 << 8 * MEGABYTES})],
    "positional arguments": lambda: [Call("f", {"a": "km"}, tuple(range(MEGABYTES // 10)))],
    "many calls": lambda: [Call("f", {"a": "km"})] * 5_000,
    "calls that all fit": lambda: [Call("f", {"a": "km"})] * MAX_CALLS,
    "long calls that do not fit": lambda: [Call("f", {"a": "- " * (MAX_CHARS // 70) + "x"})] * MAX_CALLS,
}


@pytest.mark.parametrize("name", HUGE)
def test_ten_megabytes_of_anything_are_judged_in_a_second(name):
    calls = HUGE[name]()
    for type_ in ("string", "array", "dict"):
        assert seconds(lambda type_=type_: judged(calls, type_)) < SECOND


def test_as_many_calls_as_accepted_ones_are_bounded_too():
    few, many = ([Call("f", {"a": "km"})] * count for count in (MAX_CALLS, MAX_CALLS + 1))
    assert judged(few).passed and judged(few).passed_official
    assert [mismatch.kind for mismatch in judged(many).mismatches] == ["limit"]


def test_bfcls_exponential_pattern_takes_no_time_here():
    for pairs in (26, 12_000):
        text = "[[]" + ",[]" * pairs
        assert seconds(lambda text=text: judged([Call("f", {"a": text})], "array", "javascript")) < SECOND
    assert len("[[]" + ",[]" * 26) == 81


def test_bfcls_quadratic_pattern_takes_no_time_here():
    for piece in ("new HashMap<", "new HashMap<>() {{ ", 'put("', 'put("",', "> ()"):
        text = ("new HashMap<" + piece * 48_000)[:48_000]
        assert seconds(lambda text=text: judged([Call("f", {"a": text})], "HashMap", "java")) < SECOND


PIECES = """_ ~ new new_ } { }} ) )) ( " ' \\ \\" , ; [ [[ [1], ],[ ] "" a > 1 - a: a:1, : {a: é put(" add( add(1) add(~
new_Array( new_int[]{ new_ArrayList<>(Arrays.asList( new_ArrayList<>()_{{_ new_HashMap<>()_{ put("a",_1) put("a",~ >_()
>_()~ new~HashMap<~>"""
PIECES = [piece.replace("_", " ").replace("~", "\n") for piece in PIECES.split()]
HEADS = {
    "Array": ["", "new int[]{"],
    "ArrayList": ["", "new ArrayList<>(Arrays.asList(", "new ArrayList<>() {{"],
    "HashMap": ["", "new HashMap<>() {{", "new HashMap<"],
    "double": [""],
    "array": ["", "[", "[[", "new Array(", "new Array(["],
    "dict": ["", "{", "{a:", "{a:["],
    "float": [""],
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_longest_literals_made_of_one_piece_take_no_time(kind):
    language = java if kind in java.TYPES and kind != "float" else javascript
    inner = "integer" if kind in language.COLLECTIONS else None
    for head in HEADS[kind]:
        for piece in PIECES:
            text = (head + piece * MAX_CHARS)[:MAX_CHARS]
            for official in (True, False):
                spent = seconds(lambda t=text, o=official: language.convert(t, kind, inner, official=o))
                assert spent < SECOND, (head, piece, official, spent)


LANGUAGES = [
    *(("python", kind) for kind in ("string", "integer", "float", "boolean", "array", "tuple", "dict", "any")),
    *(("java", kind) for kind in java.TYPES),
    *(("javascript", kind) for kind in javascript.TYPES),
    ("python", "no type"),
]


def anything(rng: random.Random, depth: int = 0):
    """A value as JSON has it, or a text of the signs that literals are made of."""
    kind = rng.randrange(10 if depth < 3 else 8)
    if kind < 4:
        return "".join(rng.choice("""new int[]{}()<>"',:;1a \n-é""") for _ in range(rng.randrange(9)))
    if kind < 8:
        return rng.choice(
            [None, True, False, 0, 1, -1, 1.0, 0.5, float("nan"), float("inf"), 10**400, "", "a", "\ud800"]
        )
    inner = [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return inner if kind == 8 else dict(zip("abc", inner, strict=False))


def test_nothing_raises():
    rng = random.Random(0)
    inner_types = ["string", "integer", "float", "dict", "array", "any", "String", "HashMap"]
    passed = 0
    for _ in range(5_000):
        language, type_ = rng.choice(LANGUAGES)
        written, accepted = anything(rng), [anything(rng) for _ in range(rng.randrange(4))]
        accepted += [[written], [[written]], []][rng.randrange(3)]
        calls = [Call("f", {"a": written})] * rng.randint(1, 3)
        checked = judged(calls, type_, language, accepted, rng.choice(inner_types))
        assert checked.passed == (not checked.mismatches)
        passed += checked.passed or checked.passed_official
    assert passed > 200


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_a_matching_is_found_whenever_there_is_one(fits):
    def possible(index: int, free: frozenset) -> bool:
        return index == len(fits) or any(fits[index][call] and possible(index + 1, free - {call}) for call in free)

    size, fit = len(fits), lambda index, call: fits[index][call]
    lonely, left = unmatched(size, fit)
    assert (not lonely) == possible(0, frozenset(range(len(fits))))
    assert len(lonely) == len(left)
    assert lonely == [] or unmatched_greedily(size, fit) is not None


def test_a_matching_that_needs_long_exchanges_is_found_in_no_time():
    size = MAX_CALLS

    def fit(index: int, call: int) -> bool:
        return call == 0 if index == size - 1 else call in (index, index + 1)

    assert seconds(lambda: unmatched(size, fit)) < SECOND
    assert unmatched(size, fit) == ([], []) and unmatched_greedily(size, fit) == size - 1


def test_judging_changes_neither_calls_nor_tasks():
    for task in tasks("parallel_multiple")[:20]:
        before = repr(task)
        calls = [Call(name, {"a": [1, {"b": (2,)}]}) for item in task.accepted for name in item]
        check_calls(calls, task.functions, task.accepted, parallel=True)
        assert repr(task) == before and all(call.arguments == {"a": [1, {"b": (2,)}]} for call in calls)
