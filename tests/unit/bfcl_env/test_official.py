"""Our executor and checkers beside BFCL's own, on trusted input, and each deliberate difference with both sides."""

import decimal
import hashlib
import inspect
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import pytest
from support.official_bfcl import OfficialEpisode
from support.single_turn import ast_checker, check, gold, inside, official, task_of, tasks
from support.single_turn import mutants as single_turn_mutants

from bfcl_env import CallError, Episode, ErrorKind, load_scenarios, make_call, parse_call
from bfcl_env.proof.differences import MULTI_TURN, SINGLE_TURN
from bfcl_env.proof.mutants import mutants, random_call
from bfcl_env.single_turn import audit_known, java, javascript, load_tasks, values
from bfcl_env.single_turn.tasks import _plain
from bfcl_env.source import function_owners, load_class
from interaction.call import Call

MUTANTS = 1_000
SEED = 20260323
RECORDED = Path(__file__).with_name("mutants_recorded.json")
FILES = load_scenarios("multi_turn_base")[0]


@pytest.fixture(autouse=True)
def restored_process():
    """What BFCL's executor leaves behind in the process is taken back."""
    with mpmath.workdps(mpmath.mp.dps), decimal.localcontext():
        yield


# What was recorded when it agreed with BFCL's own code: a hash for each conversation, and for 20 messages each.


def hashed(found):
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]


def played(mutant):
    found = []
    with Episode(mutant.scenario) as episode:
        for number, calls in enumerate(mutant.turns):
            for call in calls:
                result = episode.execute(call)
                match = episode.match_gold(call, result)
                found.append([result.text, result.error, match, episode.closeness()])
            verdict = episode.end_turn(answered=number % 3 != 1)
            sides = verdict.passed, verdict.passed_official, verdict.state_matches, verdict.responses_match
            found.append([*sides, *verdict.difference])
    return hashed(found)


def noted(task, calls, answer=None):
    """What the environment says to calls, and how it judges them."""
    attempt = task.open()
    attempt.begin()
    results = [attempt.call(call) for call in calls]
    if answer is not None:
        attempt.answer(answer)
        results += [attempt.call(call) for call in calls]
    return repr((results, attempt.verdicts()))


def nested(rng, depth=0):
    """Accepted values of any type; objects accept several for each key."""
    kind = rng.randrange(9 if depth < 2 else 7)
    if kind < 7:
        return rng.choice(["km", "K m.", "5.5", "", 0, 1, 2.0, 2.5, True, False])
    if kind == 7:
        return [nested(rng, depth + 1) for _ in range(rng.randrange(3))]
    several = {key: [nested(rng, depth + 1) for _ in range(rng.randrange(1, 3))] for key in rng.sample("abc", 2)}
    return {key: rng.choice([those, [*those, ""], those[0] or those]) for key, those in several.items()}


def near(count):
    """Tasks of one nested argument, each with a value that is an accepted one or nearly so."""
    rng = random.Random(SEED)
    for number in range(count):
        kind, items = rng.choice([*values.TYPES, "none"]), rng.choice([*values.TYPES, "none"])
        fit = [one for one in (nested(rng) for _ in range(9)) if type(one) is values.TYPES.get(kind, str)]
        accepted = [*(fit[:1] if kind == "dict" else fit[:2]), *[""] * (number % 5 == 0)] or [nested(rng)]
        given = _plain(rng.choice(accepted))
        given = inside(rng, given) if number % 4 else tuple(given) if kind == "tuple" and type(given) is list else given
        calls = [Call("f", {"a": given}, (1,) * (number % 40 == 0))]
        yield task(Case("", kind, accepted, given, True, items=items)), calls


def recorded(part, found):
    assert found == json.loads(RECORDED.read_text())[part]


def test_faulty_conversations_have_the_results_and_verdicts_that_were_recorded():
    recorded("multi_turn", [played(mutant) for mutant in mutants(SEED, 330)])


def test_faulty_messages_are_judged_as_bfcl_does_and_have_the_mismatches_that_were_recorded():
    messages = [*single_turn_mutants(2_000, SEED), *near(3_000)]
    assert [one for one in messages if check(*one).passed_official != official(*one)] == []
    found = [noted(*one) for one in messages]
    for task in [task for task in load_tasks() if task.kind.wanted != "accepted"][::7]:
        names = [document["name"] for document in task.functions][:1] + ["no" * 99]
        one, *more = [Call(name, arguments) for name in names for arguments in ({}, {"no" * 99: 1})]
        found += [noted(task, calls, said) for calls in ([], [one], more) for said in (None, "", "I cannot.")]
    recorded("single_turn", [hashed(found[start : start + 20]) for start in range(0, len(found), 20)])


def test_what_single_turn_tasks_ask_show_and_accept_and_where_they_stand_is_as_recorded():
    ast_checker()  # stubs what the next one does not need
    from bfcl_eval.utils import _func_doc_language_specific_pre_processing as documented

    found = {}
    for task in load_tasks():
        request = task.open().begin()
        if task.kind.language != "python":
            assert request.functions == documented(task.functions, task.category), task.id
        those = [task.id, task.cluster, task.part, repr(request), repr([*task.gold()])]
        found.setdefault(task.category, []).append(those)
    recorded("tasks", {name: hashed(those) for name, those in found.items()} | {"audit": hashed(audit_known())})


def with_class(class_name):
    return next(item for item in load_scenarios("multi_turn_base") if class_name in item.classes)


def disagreements(scenario, turns):
    """Plays the calls on both sides; returns what differed, how many calls hit a limit, and our verdicts."""
    found, limited, verdicts = [], 0, []
    with Episode(scenario, withheld="official") as ours, OfficialEpisode(scenario) as theirs:
        for number, calls in enumerate(turns):
            results = [(call, ours.execute(call)) for call in calls]
            played = [(call, result.text) for call, result in results if result.error is not ErrorKind.LIMIT]
            limited += len(results) - len(played)
            expected = theirs.execute(*[call for call, _ in played])
            found += [(ours, theirs) for ours, theirs in zip(played, expected, strict=True) if ours[1] != theirs]
            verdict, wanted = ours.end_turn(), theirs.end_turn()
            verdicts.append(verdict)
            mine = verdict.passed_official, verdict.state_matches, verdict.responses_match
            judged = 3 if scenario.turns[number].gold else 1
            if mine[:judged] != (wanted.passed, wanted.state_matches, wanted.responses_match)[:judged]:
                found.append((scenario.id, number, verdict, wanted))
    return found, limited, verdicts


def official_check(scenario, turns):
    with OfficialEpisode(scenario) as theirs:
        return theirs.check(turns)


@pytest.mark.slow
def test_gold_and_drawn_calls_among_it_have_bfcls_result_texts_and_verdicts():
    rng, names = random.Random(SEED), set()
    for scenario in load_scenarios():
        turns = tuple(turn.gold for turn in scenario.turns)
        found, limited, verdicts = disagreements(scenario, turns)
        assert (found, limited) == ([], 0) and official_check(scenario, turns)
        assert all(verdict.passed and verdict.passed_official for verdict in verdicts)
        mixed = [[*calls, *(random_call(scenario, rng) for _ in range(5))] for calls in turns]
        for calls in mixed:
            rng.shuffle(calls)
            names.update(call.name for call in calls)
        assert disagreements(scenario, tuple(map(tuple, mixed)))[0] == []
    assert names == set(function_owners())


@pytest.mark.slow
def test_mutants_have_bfcls_result_texts_and_verdicts():
    for mutant in mutants(SEED, MUTANTS):
        assert disagreements(mutant.scenario, mutant.turns)[0] == []


def test_positional_arguments_mean_what_they_mean_to_bfcl():
    rng = random.Random(SEED)
    for name, owner in function_owners().items():
        scenario = with_class(owner)
        order = list(inspect.signature(getattr(load_class(owner), name)).parameters)[1:]
        arguments = random_call(scenario, rng, frozenset({name})).arguments
        given = [arguments[key] for key in order if key in arguments]
        for listed in (given, given[:-1], [*given, "surplus"]):
            text = f"{name}({', '.join(map(repr, listed))})"
            call = parse_call(text, scenario)
            if len(listed) <= len(order):
                assert call.arguments == dict(zip(order, listed, strict=False)) and not call.positional
            with Episode(scenario) as ours, OfficialEpisode(scenario) as theirs:
                result = ours.execute(call)
                if result.error is not ErrorKind.LIMIT:
                    assert [result.text] == theirs.execute(text), text


JAVA = """new_ new~ ~ _ __ int [] []{ { } {{ }} ArrayList<String> ArrayList<> ( Arrays.asList( ) )) add( put(" ," "
k "a" 'b' 1 2L 3.5f 1e3 true false , ,_ ; HashMap< > HashMap<String,_Object>() () x (() new_int[]{ new_ArrayList<>()
new_HashMap<>()_{{ put("k",_"v"); - \\"""
JAVASCRIPT = """[ ] _ ~ [[ ]] , ,_ 1 2.5 "a" 'b' true false { } : :_ new_Array( ) x n 3n " ' k :: ,:"""
EDGES = {
    "Array": "new int[]{|}",
    "ArrayList": "new ArrayList<>(Arrays.asList(|))|new ArrayList<>() {{|new ArrayList<>() {{ add(|);}}|}}",
    "HashMap": 'new HashMap<>() {{ put("|");}}|new HashMap<>() {|}|new HashMap<|> ()',
    "array": "[|]|[[|], [|]]",
    "dict": "{|}|{:|}}",
}
"""How such literals begin, go on and end."""


@pytest.mark.parametrize(("language", "pieces"), [(java, JAVA), (javascript, JAVASCRIPT)], ids=["java", "js"])
def test_random_literals_are_read_as_bfcl_does(language, pieces):
    ast_checker()  # stubs what BFCL's converters do not need
    from bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter import java_type_converter
    from bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter import js_type_converter

    convert = java_type_converter if language is java else js_type_converter
    rng, wrong, ours = random.Random(1), [], []
    collections = [kind for kind in EDGES if kind in language.TYPES]
    for _ in range(8_000):
        kind = rng.choice(collections * 3 + list(language.TYPES))
        inner = rng.choice([*language.TYPES, None])
        inner = inner if kind in language.COLLECTIONS else None
        text = "".join(rng.choice(pieces.split()) for _ in range(rng.randint(1, 14)))
        edges = EDGES.get(kind)
        before, middle, after = (rng.choice(["", *edges.split("|")] if edges else [""]) for _ in range(3))
        text = f"{before}{text}{middle}{rng.choice(pieces.split())}{after}".replace("_", " ").replace("~", "\n")
        expected, found = convert(text, kind, inner), language.convert(text, kind, inner, official=True)
        wrong += [(text, kind, inner, expected, found)] * (repr(expected) != repr(found))
        ours.append(repr(language.convert(text, kind, inner, official=False)))
    assert not wrong
    recorded(language.__name__, hashed(ours))


WITHHELD = load_scenarios("multi_turn_miss_func")[0]
LOGIC = with_class("MathAPI")
UNDEFINED = "Error during execution: name '{}' is not defined"
TEXTS = [
    ("call_like_text", FILES, "echo(content='cd (now)')", '{"terminal_output": "cd (now)"}', "_instance.cd(now)"),
    ("foreign_names", FILES, "len('abc')", UNDEFINED.format("len"), "3"),
    ("foreign_names", FILES, "json.dumps('a')", UNDEFINED.format("json"), '"a"'),
    ("names_that_are_not_names", FILES, make_call("1 or ls", {}), "is not defined", "1"),
    ("names_that_are_not_names", FILES, make_call("cd", {"a b": 1}), "unexpected keyword argument 'a b'", "syntax"),
    ("not_a_number", LOGIC, make_call("add", {"a": float("nan"), "b": 1.0}), '{"result": NaN}', "'nan' is not"),
    ("lone_surrogates", FILES, make_call("cd", {"\ud800": 1}), "\\ud800", "codec can't encode"),
    ("limits", LOGIC, "square_root(number=4, precision=1001)", "precision must be between 1", "Decimal('2')"),
    ("withheld_functions", WITHHELD, "sort('final_report.pdf')", UNDEFINED.format("sort"), "No such file"),
]
"""Difference, scenario, call, and what our text and BFCL's say."""


def test_each_deliberate_difference_of_multi_turn_tasks_is_as_described():
    for name, scenario, call, mine, yours in TEXTS:
        with Episode(scenario) as ours, OfficialEpisode(scenario) as theirs:
            text = ours.execute(parse_call(call, scenario) if isinstance(call, str) else call).text
            (other,) = theirs.execute(call)
            assert text.encode() and mine in text and yours in other and text != other, name
    assert {name for name, *_ in TEXTS} < MULTI_TURN.keys()
    for text, said in (("cd(folder='a', folder='b')", "keyword argument repeated"), ("1 + 1", "2")):
        with OfficialEpisode(FILES) as theirs:
            assert said in theirs.execute(text)[0]
        with pytest.raises(CallError):
            parse_call(text, FILES)
    number = next(number for number, turn in enumerate(WITHHELD.turns) if not turn.gold)
    junk = make_call("no_such_function", {})
    turns = tuple((junk,) if at == number else turn.gold for at, turn in enumerate(WITHHELD.turns))
    found, _, verdicts = disagreements(WITHHELD, turns)
    assert official_check(WITHHELD, turns) and not found
    assert not verdicts[number].passed and verdicts[number].passed_official


class Case(NamedTuple):
    name: str
    type: str
    accepted: list[Any]
    written: Any
    officially: bool
    language: str = "python"
    items: str = "string"
    ours: bool | None = None
    """None: the opposite of BFCL's verdict."""


JAVA_, SCRIPT = "java", "javascript"
CASES = [
    Case("quoted_elements", "Array", [["a", "b"]], 'new String[]{"a", "b"}', False, JAVA_, "String"),
    Case("quoted_elements", "ArrayList", [["b"]], "new ArrayList<>(Arrays.asList(abc))", True, JAVA_, "String"),
    Case("quoted_elements", "Array", [[["a, b"]]], 'new List[]{new String[]{"a, b"}}', False, JAVA_, "Array"),
    Case("untyped_elements", "Array", [["a", 1, True]], 'new Object[]{"a", 1, true}', False, JAVA_, "any"),
    Case("nested_literals", "dict", [{"a": [{"b": 1}]}], '{"a": {"b": 1}}', False, SCRIPT),
    Case("nested_literals", "HashMap", [{"a": ["x)"]}], 'new HashMap<>() {{ put("a", "x)"); }}', False, JAVA_),
    Case("whole_literal", "array", [[1, 2]], "[1, 2].concat(more)", True, SCRIPT, "integer"),
    Case("whole_literal", "array", [[[1], [2]]], "[[1]\n,[2]].concat(more)", True, SCRIPT, "array"),
    Case("whole_literal", "ArrayList", [[["b"]]], "new ArrayList<>(Arrays.asList(new X[]{b}.c))", True, JAVA_, "Array"),
    Case("whole_literal", "HashMap", [{}], "new HashMap<>(other) // new HashMap<>()", True, JAVA_),
    Case("bare_values", "dict", [{"a": "text"}], {"a": "text"}, False),
    Case("bare_values", "dict", [{"a": "text"}], {"a": "t"}, True),
    Case("bare_values", "array", [["x"], "ab"], ["a", "b"], True),
    Case("whole_numbers_in_lists", "array", [[1.0, 2.5]], [1, 2.5], False, items="float"),
    Case("truth_values", "dict", [{"a": [[{"b": 0}]]}], {"a": [{"b": False}]}, True),
    Case("punctuation", "string", ["km", ""], "-", True),
    Case("number_texts", "string", ["5.5"], "55", True),
    Case("raises", "float", [5.0], 10**400, False, ours=False),
    Case("raises", "array", [[{"a": [1]}], ""], ["a"], False, items="dict", ours=False),
    Case("raises", "array", [["x"], 5], [], False, ours=False),
    Case("raises", "Bigint", [12], "12n\n", False, SCRIPT, ours=False),
    Case("limits", "string", ["km"], "km" + " " * 60_000, True),
]


def task(case):
    properties = {"a": {"type": case.type, "items": {"type": case.items}}}
    document = {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["a"]}}
    return task_of(case.language, document, [{"f": {"a": case.accepted}}])


def test_each_difference_of_single_turn_verdicts_is_shown_on_both_sides():
    failed = []
    for case in CASES:
        calls = [Call("f", {"a": case.written})]
        checked = check(task(case), calls)
        ours = not case.officially if case.ours is None else case.ours
        wanted = case.officially, ours, case.officially and case.name != "limits"
        if (official(task(case), calls), checked.passed, checked.passed_official) != wanted:
            failed.append((case, checked))
    assert not failed
    assert {case.name for case in CASES} - {""} == SINGLE_TURN.keys() - {"pairing", "positional"}
    parallel = next(item for item in tasks() if item.id == "parallel_178")
    calls = gold(parallel)[0]
    checked = [check(parallel, order) for order in (calls, calls[::-1])]
    assert [item.passed for item in checked] == [True, True]
    assert [item.passed_official for item in checked] == [True, official(parallel, calls[::-1])] == [True, False]
    checked = check(task(Case("", "string", ["km"], "km", True)), [Call("f", {"a": "km"}, ("more",))])
    assert checked.passed_official and [item.kind for item in checked.mismatches] == ["unexpected_param"]
