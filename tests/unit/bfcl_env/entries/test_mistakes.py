"""What is wrong with a file of entries is said at once, each with its entry, field, what was found and expected."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.entries import GAUGE, multi_turn, says, single_turn, write

from bfcl_env.entries import file_environment
from data_prep.__main__ import main as prepare_data

Run = Callable[[Any], str]


def documented(**changes: Any) -> dict[str, Any]:
    """The gauge's document with changes; None leaves a key out."""
    return {key: value for key, value in {**GAUGE, **changes}.items() if value is not None}


def with_parameters(**changes: Any) -> dict[str, Any]:
    return single_turn(function=[documented(parameters={**GAUGE["parameters"], **changes})])  # type: ignore[dict-item]


def text_of(entry: dict[str, Any], old: str, new: str) -> str:
    """A file of one entry, with a piece of its text replaced."""
    text = json.dumps([entry])
    assert old in text
    return text.replace(old, new, 1)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


FILES: dict[str, tuple[Any, str]] = {
    "empty": ("", "found an empty file; expected one JSON array"),
    "no entry": ("[]", "found no entry; expected one JSON array"),
    "a number": ("5", "found '5'; expected one JSON array"),
    "a text": ('"a"', "expected one JSON array"),
    "Python": (str([single_turn()]), "line 1, column 3: found Expecting property name enclosed in double quotes"),
    "a comment": ('[\n# mine\n{"id": "a"}]', "line 2, column 1: found Expecting value; expected JSON"),
    "a comma too many": (json.dumps([single_turn()])[:-1] + ",]", "found Expecting value; expected JSON"),
    "no comma": ("[{} {}]", "found Expecting ',' delimiter"),
    "no end": (json.dumps([single_turn()])[:-1], "expected JSON"),
    "more after the end": (json.dumps([single_turn()]) + "\n[]", "line 2, column 1: found Extra data after the array"),
    "an entry that is a list": ([[]], "entry 1 (line 2): found []; expected an object"),
    "an object around the array": ({"data": [single_turn()]}, "entry 1 (line 1): id: found nothing; expected a text"),
    "no UTF-8": ('[\n"Jos\xe9"]'.encode("latin-1"), "line 2: found the byte 0xe9, which is not UTF-8"),
    "a key twice": (text_of(single_turn(), '"id":', '"id": "x", "id":'), "found the key 'id' twice in one object"),
    "not a number": (text_of(single_turn(), "2]", "NaN]"), "found NaN; expected a number that JSON has"),
    "infinite": (text_of(single_turn(), "2]", "-Infinity]"), "found -Infinity; expected a number that JSON has"),
    "too large a number": (
        text_of(single_turn(), "2]", "1e999]"),
        "found the number 1e999; expected one that a double",
    ),
    "too many digits": (text_of(single_turn(), "2]", f"{'9' * 5000}]"), "found a whole number of 5000 digits"),
    "half a pair": (text_of(single_turn(), "What", "\\ud800"), "found half of a surrogate pair in '\\ud800 does"),
    "deep": ([single_turn(note=nested(60))], "nested more than 50 levels deep"),
    "very deep": ("[" * 100_000, "line 1: found lists or objects too deep to read; expected at most 50 levels"),
}


@pytest.mark.parametrize("case", FILES)
def test_what_is_no_file_of_entries_is_refused(case: str, refused: Run) -> None:
    content, said = FILES[case]
    assert said in refused(content)


IDS: dict[str, tuple[Any, str]] = {
    "none": (None, "entry 1 (line 2): id: found nothing; expected a text of 1 to 200 printable characters"),
    "a number": (7, "id: found 7; expected a text"),
    "empty": ("", "id: found ''; expected a text"),
    "long": ("simple_" + "1" * 200, "expected a text of 1 to 200 printable characters"),
    "unprintable": ("simple_\n1", "expected a text of 1 to 200 printable characters"),
    "no category": ("gauge_1", "id: found 'gauge_1', which names no category; expected its category, an"),
    "no number": ("simple_python_", "which names no category"),
    "a category alone": ("simple", "which names no category"),
    "not supported": ("exec_simple_0", "which names no category"),
    "misspelt": ("multi_turn_bsae_1", "which names no category"),
}


@pytest.mark.parametrize("case", IDS)
def test_an_id_names_a_category(case: str, refused: Run) -> None:
    found, said = IDS[case]
    assert said in refused([single_turn(id=found)])


def test_no_two_entries_have_one_id(refused: Run) -> None:
    said = refused(json.dumps([single_turn(), single_turn(1), single_turn()]))
    assert "simple_python_0 (entry 3 (line 1)): id: found that of simple_python_0 (entry 1 (line 1)) again" in said


QUESTIONS: dict[str, tuple[Any, str]] = {
    "none": (None, "question: found nothing; expected turns"),
    "text": ("Read it.", "question: found 'Read it.'; expected turns"),
    "no turn": ([], "question: found []; expected turns"),
    "messages without turns": (says("Read it."), "question[0]: found {"),
    "no message": ([[]], "question[0]: found"),
    "a message of text": ([["Read it."]], "question[0][0]: found 'Read it.'; expected an object with role and content"),
    "no content": ([[{"role": "user"}]], "question[0][0]: found {'role': 'user'}; expected an object with role and"),
    "content is no text": ([[{"role": "user", "content": 1}]], "question[0][0].content: found 1; expected the words"),
    "no words": ([says(" ")], "question[0][0].content: found ' '; expected the words"),
    "another role": ([[{"role": "tool", "content": "a"}]], "question[0][0].role: found 'tool'; expected "),
    "more keys": ([[{"role": "user", "content": "a", "name": "b"}]], "question[0][0]: found also 'name'"),
}


@pytest.mark.parametrize("make", [single_turn, multi_turn])
@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question_is_turns_of_messages(case: str, make: Callable[..., dict[str, Any]], refused: Run) -> None:
    found, said = QUESTIONS[case]
    assert said in refused([make(question=found, ground_truth=[[]])])


SINGLE: dict[str, tuple[dict[str, Any], str]] = {
    "two turns": (single_turn(question=[says("a"), says("b")]), "question: found 2 turns; expected one"),
    "the user says nothing": (
        single_turn(question=[[{"role": "system", "content": "Be short."}]]),
        "expected messages of which the last is the user's",
    ),
    "classes": (single_turn(involved_classes=["MathAPI"]), "involved_classes: found ['MathAPI']; expected nothing"),
    "no function": (single_turn(function=None), "function: found nothing; expected a list of documents"),
    "an empty list of functions": (single_turn(function=[]), "function: found []; expected a list of documents"),
    "a name alone": (single_turn(function=["read_gauge"]), "function[0]: found 'read_gauge'; expected an object"),
    "no name": (single_turn(function=[documented(name=None)]), "function[0]: found {"),
    "one name twice": (single_turn(function=[GAUGE, GAUGE]), "function[1].name: found 'read_gauge'; expected another"),
    "no description": (single_turn(function=[documented(description=None)]), "function[0].description: found nothing"),
    "no parameters": (single_turn(function=[documented(parameters=None)]), "function[0].parameters: found None"),
    "parameters of another type": (with_parameters(type="list"), "function[0].parameters.type: found 'list'"),
    "required is no list": (
        with_parameters(required="gauge"),
        "parameters.required: found 'gauge'; expected a list of",
    ),
    "required is unknown": (with_parameters(required=["x"]), "expected a list of some of gauge, digits"),
    "required inside the properties": (
        with_parameters(properties={**GAUGE["parameters"]["properties"], "required": ["gauge"]}),  # type: ignore[index]
        "parameters.properties.required: found ['gauge']; expected an object with type and description",
    ),
    "an unknown type": (
        with_parameters(properties={"gauge": {"type": "text"}, "digits": {"type": "integer"}}),
        "properties.gauge.type: found 'text'; expected a type of python: string, integer",
    ),
    "a type of another language": (
        {**with_parameters(properties={"gauge": {"type": "tuple"}, "digits": {"type": "long"}}), "id": "java_0"},
        "properties.gauge.type: found 'tuple'; expected a type of java: ",
    ),
    "an unknown type inside": (
        with_parameters(properties={"gauge": {"type": "array", "items": {"type": "text"}}}, required=[]),
        "properties.gauge.items.type: found 'text'",
    ),
    "no ground truth": (single_turn(ground_truth=None), "ground_truth: found nothing; expected a list of accepted"),
    "an empty ground truth": (single_turn(ground_truth=[]), "ground_truth: found []; expected a list of accepted"),
    "calls as text": (single_turn(ground_truth=["read_gauge(gauge='0')"]), 'ground_truth[0]: found "read_gauge('),
    "two calls": (single_turn(ground_truth=single_turn()["ground_truth"] * 2), "ground_truth: found 2 calls; expected"),
    "two functions in one": (
        single_turn(ground_truth=[{"read_gauge": {}, "other": {}}]),
        "expected an object with one function",
    ),
    "no function of that name": (
        single_turn(ground_truth=[{"read_gage": {"gauge": ["0"]}}]),
        "ground_truth[0]: found 'read_gage', which is not in `function`; expected one of read_gauge",
    ),
    "no such argument": (
        single_turn(ground_truth=[{"read_gauge": {"gauge": ["0"], "unit": ["bar"]}}]),
        "ground_truth[0].read_gauge.unit: found no parameter of this name; expected gauge, digits",
    ),
    "a value alone": (
        single_turn(ground_truth=[{"read_gauge": {"gauge": "0"}}]),
        "ground_truth[0].read_gauge.gauge: found '0'; expected a list of accepted values",
    ),
    "values of an object alone": (
        single_turn(ground_truth=[{"read_gauge": {"gauge": [{"name": "a"}]}}]),
        "ground_truth[0].read_gauge.gauge: found {'name': 'a'}; expected an object whose keys have lists",
    ),
    "a required argument lacks": (
        single_turn(ground_truth=[{"read_gauge": {"digits": [1]}}]),
        "ground_truth[0].read_gauge: found no value for gauge, which is required",
    ),
    "calls where none are wanted": (
        single_turn(id="irrelevance_0"),
        "ground_truth: found [{'read_gauge'",
    ),
}

MULTI: dict[str, tuple[dict[str, Any], str]] = {
    "no classes": (multi_turn(involved_classes=None), "involved_classes: found nothing; expected a list of some of"),
    "an unknown class": (multi_turn(involved_classes=["Plant"]), "involved_classes: found 'Plant'; expected a list of"),
    "a class twice": (
        multi_turn(involved_classes=["MathAPI", "MathAPI"]),
        "involved_classes: found ['MathAPI', 'MathAPI']; expected each class once",
    ),
    "two spellings": (
        multi_turn(invoked_classes=["MathAPI"]),
        "invoked_classes: found another value than involved_classes has; expected one of the two",
    ),
    "the state is a list": (multi_turn(initial_config=[]), "initial_config: found []; expected an object"),
    "the state of an unknown class": (multi_turn(initial_config={"Plant": {}}), "initial_config.Plant: found no class"),
    "the state of a class is text": (
        multi_turn(initial_config={"GorillaFileSystem": "root"}),
        "initial_config.GorillaFileSystem: found 'root'; expected an object",
    ),
    "an attribute of another type": (
        multi_turn(initial_config={"TwitterAPI": {"tweets": []}}, involved_classes=["TwitterAPI"]),
        "initial_config.TwitterAPI.tweets: found []; expected an object",
    ),
    "a misspelt attribute": (
        multi_turn(initial_config={"TwitterAPI": {"authentcated": True}}, involved_classes=["TwitterAPI"]),
        "expected authenticated, if that is meant",
    ),
    "a turn without words": (
        multi_turn(question=[says("a"), []]),
        "question[1]: found no message; expected a message of the user",
    ),
    "functions of its own": (
        multi_turn(function=[GAUGE]),
        "function: found 'read_gauge', which none of the involved classes has; expected functions of theirs,"
        " or no `function`: cat, cd, cp",
    ),
    "some of the functions": (multi_turn(function=[{"name": "ls"}]), "function: found no document of cat, cd, cp"),
    "functions as text": (multi_turn(function="ls"), "function: found 'ls'; expected a list of documents"),
    "no ground truth": (
        multi_turn(ground_truth=None),
        "ground_truth: found nothing; expected a list of calls for each",
    ),
    "calls without turns": (
        multi_turn(ground_truth=["ls()", "ls()"]),
        "ground_truth: found ['ls()', 'ls()']; expected",
    ),
    "a turn too few": (
        multi_turn(ground_truth=[["ls()"]]),
        "ground_truth: found 1 lists of calls; expected one for each",
    ),
    "no calls at all": (multi_turn(ground_truth=[[], []]), "ground_truth: found no call in any turn"),
    "a call as an object": (
        multi_turn(ground_truth=[[{"ls": {}}], []]),
        "ground_truth[0][0]: found {'ls': {}} (a call",
    ),
    "no call": (multi_turn(ground_truth=[["ls("], []]), "ground_truth[0][0]: found 'ls(' (not a function call"),
    "two calls in one": (multi_turn(ground_truth=[["ls(), ls()"], []]), "expected one call with literal arguments"),
    "something to evaluate": (
        multi_turn(ground_truth=[["cd(folder=open('a'))"], []]),
        "ground_truth[0][0]: found \"cd(folder=open('a'))\" (arguments must be literal values, not Call)",
    ),
    "an unknown function": (
        multi_turn(ground_truth=[["fly(to='x')"], []]),
        "ground_truth[0][0]: found 'fly', which no involved class has; expected a function of GorillaFileSystem: cat, ",
    ),
    "too many arguments": (
        multi_turn(ground_truth=[["pwd('a', 'b')"], []]),
        "ground_truth[0][0]: found \"pwd('a', 'b')\" (too many positional arguments); expected no argument",
    ),
    "an argument that the function has not": (
        multi_turn(ground_truth=[[], ["ls()", "mkdir(name='a')"]]),
        "ground_truth[1][1]: found \"mkdir(name='a')\" (missing a required argument: 'dir_name');"
        " expected the arguments dir_name",
    ),
    "an argument too many": (
        multi_turn(ground_truth=[["ls(all=True)"], []]),
        "(got an unexpected keyword argument 'all'); expected the arguments a=False",
    ),
    "an argument given twice": (
        multi_turn(ground_truth=[["mkdir('a', dir_name='b')"], []]),
        "(multiple values for argument 'dir_name'); expected the arguments dir_name",
    ),
    "withheld in no turn": (
        multi_turn(missed_function={"7": ["ls"]}),
        "missed_function.7: found no turn of this number that withholds anything",
    ),
    "withheld and unknown": (
        multi_turn(missed_function={"1": ["fly"]}),
        "missed_function.1: found 'fly'; expected a function of the involved classes, once: cat, cd, cp",
    ),
    "withheld as text": (multi_turn(missed_function={"1": "ls"}), "missed_function.1: found 'ls'; expected an object"),
    "gold calls what is withheld": (
        multi_turn(missed_function={"1": ["mkdir"]}),
        "ground_truth[0][0]: found mkdir, which is withheld until turn 1 (the first is 0); expected a call that",
    ),
    "a misspelt key": (
        multi_turn(inital_config={}),
        "inital_config: found a key that is not read; expected initial_conf",
    ),
    "a key that would write to a terminal": (
        multi_turn(initial_config={"\x1b[2J\n": {}}),
        "initial_config.\\x1b[2J\\n: found no class of this name",
    ),
    "long further keys": (
        multi_turn(notes="a" * 30_000),
        "further keys: found 30013 characters; expected at most 20000",
    ),
}


@pytest.mark.parametrize("case", [*SINGLE, *MULTI])
def test_what_is_wrong_in_an_entry_is_said_with_its_field(case: str, refused: Run) -> None:
    entry, said = {**SINGLE, **MULTI}[case]
    found = refused([entry])
    assert said in found and f"{entry['id']} (entry 1 (line 2))" in found


assert not SINGLE.keys() & MULTI.keys() - {"no ground truth"}

PLAYED: dict[str, tuple[dict[str, Any], str]] = {
    "a state that cannot be loaded": (
        multi_turn(
            initial_config={"TwitterAPI": {"tweets": {"a": {}}}},
            involved_classes=["TwitterAPI"],
            ground_truth=[["get_user_tweets(username='a')"], []],
        ),
        "initial_config.TwitterAPI: found ValueError: invalid literal",
    ),
    "a call that fails": (
        multi_turn(ground_truth=[["cd(folder='nowhere')"], []]),
        "found RuntimeError: multi_turn_base_0, turn 0 (the first is 0): gold call cd(folder='nowhere') failed",
    ),
    "a value of another type": (
        multi_turn(ground_truth=[["mkdir(dir_name=7)"], []]),
        "(argument 'dir_name' must be string, not int)",
    ),
    "a value that the documented type never has": (
        {
            **with_parameters(properties={"gauge": {"type": "tuple"}}),
            "ground_truth": [{"read_gauge": {"gauge": [[1, 2]]}}],
        },
        "ground_truth: found calls that it does not accept itself",
    ),
}


def test_gold_that_does_not_pass_is_said_of_all_entries_beside_other_mistakes(refused: Run) -> None:
    entries = [
        {**entry, "id": entry["id"].replace("_0", f"_{number}")} for number, (entry, _) in enumerate(PLAYED.values())
    ]
    found = refused([*entries, multi_turn(7), single_turn(8), single_turn(9, ground_truth=None)])
    assert f"has {len(PLAYED) + 1} mistakes" in found
    for number, (case, (entry, said)) in enumerate(PLAYED.items()):
        said = said.replace(entry["id"], entries[number]["id"])
        line = next(line for line in found.splitlines() if f"(entry {number + 1} " in line)
        assert said in line and entries[number]["id"] in line, case


def test_an_entry_that_hangs_is_named(refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_environment, "SECONDS", 1.0)
    full = {"generated_ids": list(range(10_000, 100_000)), "user_map": {"Ann": "USR001", "Bob": "USR002"}}
    state = {"MessageAPI": {**full, "current_user": "USR001"}}
    calls = [["send_message(receiver_id='USR002', message='Hello.')"]]
    hangs = multi_turn(
        1, initial_config=state, involved_classes=["MessageAPI"], question=[says("x")], ground_truth=calls
    )
    found = refused([multi_turn(0), hangs, multi_turn(2)])
    assert (
        "multi_turn_base_1 (entry 2" in found and "found an episode that has not ended after 1 s of CPU time" in found
    )
    assert "the next 1 were not played" in found


def test_a_long_list_is_bounded_and_counted(refused: Run) -> None:
    found = refused([single_turn(number, ground_truth=None) for number in range(150)])
    assert "has 150 mistakes" in found and "and 50 more" in found and len(found.splitlines()) == 102


def test_a_file_that_is_not_there_and_one_of_another_ending_are_refused(tmp_path, capsys) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert prepare_data(["--json", str(tmp_path / "none.json"), *out]) == 1
    assert "found no file that can be read: No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        prepare_data(["--json", str(tmp_path / "plant.py"), *out])
    assert "does not end in .json; a Python file is given with --environment" in capsys.readouterr().err
    path = write(tmp_path, [single_turn()], "my plant.json")
    assert prepare_data(["--json", str(path), *out]) == 1
    assert "environment my plant" in capsys.readouterr().err


def test_a_huge_file_is_refused_without_being_read_as_a_whole(refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from bfcl_env.entries import json_file

    monkeypatch.setattr(json_file, "MAX_BYTES", 1000)
    assert "found more than 1000 bytes; expected several smaller files" in refused([single_turn(note="a" * 1000)])


@pytest.mark.parametrize("answer", ["{", '{"id": NaN}'])
def test_mistakes_of_a_file_of_answers_name_it(answer: str, tmp_path, capsys) -> None:
    path = write(tmp_path, single_turn(ground_truth=None))
    beside = write(tmp_path, answer, "possible_answer/plant.json")
    assert prepare_data(["--json", str(path), "--out", str(tmp_path / "out")]) == 1
    assert str(beside) in capsys.readouterr().err
