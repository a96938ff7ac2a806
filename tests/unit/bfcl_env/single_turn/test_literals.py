"""Java's and JavaScript's literals: random texts beside BFCL's converters, and our reading of whole ones."""

import random

import pytest
from support.single_turn import ast_checker

from bfcl_env.single_turn import java, javascript
from bfcl_env.single_turn.literals import split

TEXTS = 6_000
JAVA = """new_ new~ ~ _ __ int [] []{ { } {{ }} ArrayList<String> ArrayList<> ( Arrays.asList( ) )) add( put(" ," "
k "a" 'b' 1 2L 3.5f 1e3 true , ,_ ; HashMap< > HashMap<String,_Object>() () x (() new_int[]{ new_ArrayList<>()
new_HashMap<>()_{{ put("k",_"v"); - \\"""
JAVASCRIPT = """[ ] _ ~ [[ ]] , ,_ 1 2.5 "a" 'b' true { } : :_ new_Array( ) x n 3n " ' k :: ,:"""
EDGES = {
    "Array": ("new int[]{", "}"),
    "ArrayList": ("new ArrayList<>(Arrays.asList(", "))"),
    "HashMap": ('new HashMap<>() {{ put("', '");}}'),
    "array": ("[", "]"),
    "dict": ("{", "}"),
}


def random_text(rng, pieces, kind):
    """Of pieces between spaces, in which _ stands for a space and ~ for the end of a line."""
    text = "".join(rng.choice(pieces.split()) for _ in range(rng.randint(1, 14))).replace("_", " ").replace("~", "\n")
    before, after = EDGES.get(kind, ("", ""))
    return rng.choice(["", before]) + text + rng.choice(["", after])


@pytest.mark.parametrize(("language", "pieces"), [(java, JAVA), (javascript, JAVASCRIPT)])
def test_random_texts_are_read_as_bfcl_does(language, pieces):
    ast_checker()  # stubs what BFCL's converters do not need
    from bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter import java_type_converter
    from bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter import js_type_converter

    convert = java_type_converter if language is java else js_type_converter
    rng, wrong, read = random.Random(1), [], 0
    collections = [kind for kind in EDGES if kind in language.TYPES]
    for _ in range(TEXTS):
        kind = rng.choice(collections * 3 + list(language.TYPES))
        inner = rng.choice([name for name in language.TYPES if name not in EDGES] + [None])
        inner = inner if kind in language.COLLECTIONS else None
        text = random_text(rng, pieces, kind)
        expected = convert(text, kind, inner)
        found = language.convert(text, kind, inner, official=True)
        wrong += [(text, kind, inner, expected, found)] * (repr(expected) != repr(found))
        read += type(expected) is not str
    assert not wrong
    assert read > TEXTS / 10


@pytest.mark.parametrize(
    ("language", "kind", "inner", "text", "value"),
    [
        (java, "Array", "integer", "new int[]{1, 2,}", [1, 2]),
        (java, "Array", "String", """ new String[] { "a, {b}", "\\"", x } """, ["a, {b}", '\\"', "x"]),
        (java, "Array", "integer", "new int[]{1}, {2}", None),
        (java, "Array", "integer", "new int[]{1", None),
        (java, "ArrayList", "String", 'new ArrayList<String>(Arrays.asList("a", "b)"))', ["a", "b)"]),
        (java, "ArrayList", "long", "new ArrayList<>() {{ add(1L); add(2L); }}", [1, 2]),
        (java, "ArrayList", "long", "new ArrayList<>() {{ add(1L); drop(2L); }}", None),
        (java, "ArrayList", "any", "new ArrayList<>()", []),
        (
            java,
            "HashMap",
            None,
            'new HashMap<String, Object>() {{ put("a", 1); put("b", "x;y"); }}',
            {"a": 1, "b": "x;y"},
        ),
        (java, "HashMap", None, "new HashMap<>() {}", {}),
        (java, "HashMap", None, "new HashMap<>() {{ put(a, 1); }}", None),
        (java, "HashMap", None, 'new HashMap<>() {{ put("a"); }}', None),
        (javascript, "array", "String", """['a, b', "it's"]""", ["a, b", "it's"]),
        (javascript, "array", "float", "new Array(1, 2.5)", [1.0, 2.5]),
        (javascript, "array", "array", "[[1, [2]], []]", [[1, [2]], []]),
        (javascript, "array", "dict", "[{a: 1}, {'b': {c: '2'}}]", [{"a": 1}, {"b": {"c": "2"}}]),
        (javascript, "array", "integer", "[1, (2]", None),
        (javascript, "dict", None, "{a: f(1, 2), b: [x, y]}", {"a": "f(1, 2)", "b": ["x", "y"]}),
        (javascript, "dict", None, '{"url": "http://x:1", t: true,}', {"url": "http://x:1", "t": True}),
        (javascript, "dict", None, "{a}", None),
    ],
)
def test_a_whole_literal_is_read_and_anything_else_stays_text(language, kind, inner, text, value):
    found = language.convert(text, kind, inner, official=False)
    assert found == (text if value is None else value)


@pytest.mark.parametrize("levels", [5, 40, 5_000])
def test_literals_are_read_to_a_depth(levels):
    found = javascript.convert("[" * levels + "]" * levels, "array", "array", official=False)
    depth = 0
    while isinstance(found, list):
        found, depth = found[0] if found else None, depth + 1
    assert depth == levels if levels < 20 else 20 <= depth <= 22
    assert isinstance(found, str) == (levels > 20)


def test_parts_stand_between_separators_outside_of_quotes_and_brackets():
    assert split("a, 'b, c', [d, (e, f)], ", ",") == ["a", "'b, c'", "[d, (e, f)]"]
    assert split("a: b: c", ":", 1) == ["a", "b: c"]
    assert split("", ",") == []
    for unclosed in ("(a", "a)", "[a)", "'a", '"a\\"'):
        assert split(unclosed, ",") is None
