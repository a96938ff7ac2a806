"""BFCL's own verdict beside ours, on the same conversations; and that the process it is made in runs nothing else."""

import ast
import json
import os
import re
import signal
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcl_env import Call, load_scenarios, make_call
from bfcl_env.leaderboard.checker import judge_in_fork
from bfcl_env.leaderboard.official import (
    CALL_OF_NOTHING,
    OfficialChecker,
    applying_differences,
    call_text,
    scenarios_by_id,
)
from bfcl_env.proof.mutants import READ_ONLY, mutants
from bfcl_env.source import function_docs, load_padding
from interaction import Conversation, get_protocol
from interaction.record import CallRecord, EpisodeRecord
from recipe import evaluate
from recipe.evaluation.results import Judged, agreement

PROTOCOL = get_protocol("hermes")
CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
BASE = load_scenarios("multi_turn_base")


@pytest.fixture(scope="module")
def checker():
    with OfficialChecker() as checker:
        yield checker


def gold(scenario):
    return [turn.gold for turn in scenario.turns]


def conversation(scenario, turns, *, last_answer=True, **settings):
    """The record of a model that makes these calls in each turn, 40 a message, and then answers."""
    policy = {name: settings.pop(name) for name in ("max_steps_per_turn",) if name in settings}
    rules = {"at_step_limit": "official", "withheld": "official"} | settings
    with Conversation(scenario, PROTOCOL, environments={"bfcl": rules}, **policy) as played:
        played.start()
        for number, calls in enumerate(turns):
            for start in range(0, len(calls), 40):
                played.reply(PROTOCOL.render_calls("", calls[start : start + 40]))
            if last_answer or number + 1 < len(turns):
                played.reply("done")
        return played.record()


def passed_official(record):
    return all(turn.facts["passed_official"] for turn in record.turns)


def compare(checker, records):
    """Judges them; asserts that the verdicts agree wherever no listed difference applies."""
    judged = [Judged(record, checker.judge(record)) for record in records]
    found = agreement(judged)
    assert found["disagree_without_listed_difference"] == []
    return judged, found


def check_gold(checker, every):
    for category in CATEGORIES:
        scenarios = load_scenarios(category)[::every]
        judged, found = compare(checker, [conversation(item, gold(item)) for item in scenarios])
        assert all(item.official.valid for item in judged)
        assert found["differences"] == {} and found["agree"] == len(scenarios)


def check_mutants(checker, count):
    records = [conversation(item.scenario, item.turns) for item in mutants(20261121, count)]
    judged, found = compare(checker, records)
    valid = sum(bool(item.official.valid) for item in judged)
    assert count / 5 < valid < count * 4 / 5  # both verdicts occur
    assert found["without_listed_difference"] > 0.9 * count
    return found


def test_both_verdicts_agree_on_gold_of_every_category(checker):
    check_gold(checker, 20)


@pytest.mark.slow
def test_both_verdicts_agree_on_gold_of_all_800_scenarios(checker):
    check_gold(checker, 1)


def test_both_verdicts_agree_on_mutants_of_gold(checker):
    check_mutants(checker, 110)


@pytest.mark.slow
def test_both_verdicts_agree_on_many_mutants_of_gold(checker):
    print(check_mutants(checker, 5500))


def test_a_conversation_that_stops_early_fails_as_force_terminated_by_both(checker):
    scenario = BASE[0]
    record = conversation(scenario, gold(scenario)[:-1])
    assert checker.judge(record).reason == "multi_turn:force_terminated" and not passed_official(record)
    steps = [(make_call("pwd", {}),)] * 21  # the 21st message ends the episode in a turn that is not the last
    rules = {"bfcl": {"at_step_limit": "official"}}
    with Conversation(scenario, PROTOCOL, max_steps_per_turn=21, environments=rules) as played:
        played.start()
        for calls in steps:
            played.reply(PROTOCOL.render_calls("", calls))
        assert played.done
    assert checker.judge(played.record()).reason == "multi_turn:force_terminated"


def test_the_last_turn_is_judged_by_both_when_its_messages_run_out(checker):
    scenario = next(item for item in BASE if len(item.turns) == 1)
    record = conversation(scenario, gold(scenario), last_answer=False, max_steps_per_turn=1, at_step_limit="judge")
    assert record.stop_reason == "max_steps"
    assert passed_official(record) and checker.judge(record).valid


def test_a_withheld_function_that_was_refused_is_not_run_by_the_checker_either(checker):
    """BFCL would run it, and pass the turn in which it was due because the work is already done."""
    found = []
    for scenario in load_scenarios("multi_turn_miss_func")[:20]:
        due = next(number for number, turn in enumerate(scenario.turns) if turn.revealed)
        turns = gold(scenario)
        turns[due - 1], turns[due] = turns[due], (make_call("no_such_function", {}),)
        refused, official = (conversation(scenario, turns, withheld=rule) for rule in ("refused", "official"))
        for record in (refused, official):
            assert checker.judge(record).valid == passed_official(record)
        found.append((passed_official(refused), passed_official(official)))
    assert (False, True) in found and (True, False) not in found


def test_a_call_of_nothing_is_a_call_that_was_made(checker):
    """A turn whose gold results were all read before passes if anything was called in it, and not if nothing was."""
    scenario, turn = next(
        (item, number)
        for item in BASE
        for number in range(1, len(item.turns))
        if item.turns[number].gold and {call.name for call in item.turns[number].gold} <= READ_ONLY
    )
    turns = gold(scenario)
    turns[turn - 1] += turns[turn]
    for calls, passes in (((make_call("nowhere", {}),), True), ((), False)):
        turns[turn] = calls
        record = conversation(scenario, turns)
        assert checker.judge(record).valid == passed_official(record) == passes


def test_a_tuple_that_the_file_has_as_a_list_is_judged_as_the_tuple_it_was(checker):
    """BFCL compares values, so a tuple where gold has a list is another state."""
    python = get_protocol("python_calls")
    scenario, turn = next(
        (item, number)
        for item in BASE
        for number, turn in enumerate(item.turns)
        if [call.name for call in turn.gold] == ["post_tweet"] and turn.gold[0].arguments.get("tags")
    )
    verdicts = []
    for kind in (list, tuple):
        turns = gold(scenario)
        arguments = dict(turns[turn][0].arguments)
        turns[turn] = (Call("post_tweet", arguments | {"tags": kind(arguments["tags"])}),)
        with Conversation(scenario, python) as played:
            played.start()
            for calls in turns:
                if calls:
                    played.reply(python.render_calls("", calls))
                played.reply("done")
            record = EpisodeRecord.from_dict(json.loads(json.dumps(played.record().to_dict())))
        assert checker.judge(record).valid == passed_official(record)
        verdicts.append(passed_official(record))
    assert verdicts == [True, False]


# What a model writes stays data.

HOSTILE_NAMES = (
    "__import__('os').system('touch {mark}') or cd",
    "open('{mark}', 'w').close",
    "cd(folder='x') or open('{mark}','w').close",
    "exec",
    "(exit)",
    "os.system",
    "sys.exit",
    "GorillaFileSystem.ls",
    "_load_scenario",
    "cd.__globals__",
)
HOSTILE_TEXTS = (
    "__import__('os').system('touch {mark}')",
    "' + str(open('{mark}', 'w')) + '",
    "\\' + str(open('{mark}', 'w')) + \\'",
    "\tail(__import__('os').system('touch {mark}'))",
    "\rm (open('{mark}', 'w'))",
    "\\",
    "'''",
    "{{mark}}",
    "a\nimport os; os.system('touch {mark}')\n",
    "\ud800 cd (x)",
)
HOSTILE_KEYS = (
    "folder=__import__('os').system('touch {mark}'), x",
    "folder)or open('{mark}','w').close(",
    "**{{}}, folder",
    "lambda",
    "",
)


def hostile_calls(mark):
    for name in HOSTILE_NAMES:
        yield Call(name.format(mark=mark), {"folder": "x"})
    for text in HOSTILE_TEXTS:
        text = text.format(mark=mark)
        yield Call("echo", {"content": text, "file_name": "f"})
        yield Call("cd", {"folder": [text, {text: text}]})
    for key in HOSTILE_KEYS:
        yield Call("cd", {key.format(mark=mark): "x"})


def test_nothing_that_a_model_writes_is_executed_by_the_checker(checker, tmp_path):
    """Records may come from anywhere, so they are made here without any parser that would have refused them."""
    scenario = BASE[0]
    mark = tmp_path / "mark"
    played = conversation(scenario, gold(scenario))
    for call in hostile_calls(mark):
        step = played.turns[0].steps[0]
        hostile = CallRecord(call.name, call.arguments, "", None, None)
        turn = replace(played.turns[0], steps=(replace(step, calls=(*step.calls, hostile)), *played.turns[0].steps[1:]))
        verdict = checker.judge(replace(played, turns=(turn, *played.turns[1:])))
        assert verdict.valid is not None, (call, verdict)
        assert os.listdir(tmp_path) == [], call
    assert checker.judge(played).valid


def test_names_that_no_function_has_never_reach_the_text_that_is_evaluated():
    for call in hostile_calls("m"):
        record = CallRecord(call.name, call.arguments, "")
        if call.name != "echo":
            assert call_text(record, BASE[0]) == CALL_OF_NOTHING or call.name == "cd"
    other_class = CallRecord("add", {"a": 1.0, "b": 2.0}, "")
    assert call_text(other_class, next(item for item in BASE if "MathAPI" not in item.classes)) == CALL_OF_NOTHING


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(), items, max_size=3),
    max_leaves=6,
)


@given(
    name=st.sampled_from(sorted(function_docs()["GorillaFileSystem"])) | st.text(max_size=20),
    arguments=st.dictionaries(st.sampled_from(["folder", "a", "file_name"]) | st.text(max_size=8), json_values),
)
def test_the_text_of_a_call_is_one_call_of_a_known_function_with_literals(name, arguments):
    text = call_text(CallRecord(name, arguments, ""), BASE[0])
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args
    if text != CALL_OF_NOTHING:
        assert tree.func.id == name in function_docs()["GorillaFileSystem"]
        assert {item.arg: ast.literal_eval(item.value) for item in tree.keywords} == arguments


def test_a_call_that_never_ends_is_killed_and_the_next_episode_is_judged():
    maths = next(item for item in BASE if "MathAPI" in item.classes)
    record = conversation(maths, gold(maths))
    endless = CallRecord("square_root", {"number": 2, "precision": 50_000_000}, "Error ...", None, "limit")
    step = replace(record.turns[0].steps[0], calls=(endless,))
    with OfficialChecker(cpu_seconds=1) as checker:
        verdict = checker.judge(replace(record, turns=(replace(record.turns[0], steps=(step,)), *record.turns[1:])))
        assert verdict.valid is None and verdict.differences == ("limits",)
        assert verdict.reason in ("ended by SIGXCPU", "no verdict within 6 s")  # the latter on a busy machine
        assert checker.judge(record).valid


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda mark: bytearray(20 * 10**9), "MemoryError"),
        (lambda mark: mark.write_text("x"), "OSError: .*File too large"),
        (lambda mark: time.sleep(60), "no verdict within 6 s"),
        (lambda mark: sys.exit("x"), "SystemExit"),
        (lambda mark: os._exit(7), "ended with status"),
        (lambda mark: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL"),
    ],
    ids=["memory", "file", "time", "exit", "end", "killed"],
)
def test_whatever_the_evaluated_text_did_there_is_an_answer(deed, said, tmp_path, monkeypatch):
    monkeypatch.setattr("bfcl_env.leaderboard.checker.verdict", lambda *_: deed(tmp_path / "mark"))
    answer = judge_in_fork(BASE[0], [], cpu_seconds=1, memory_bytes=10**10)
    assert re.match(said, answer["fault"])
    assert not (tmp_path / "mark").exists() or (tmp_path / "mark").read_text() == ""


def test_no_episode_changes_the_verdict_of_another(checker):
    wrong = conversation(BASE[0], [(make_call("mkdir", {"dir_name": "mine"}),), *gold(BASE[0])[1:]])
    right = conversation(BASE[0], gold(BASE[0]))
    assert [checker.judge(record).valid for record in (wrong, right, wrong, right)] == [False, True, False, True]


# Listed differences.


def test_spending_from_a_card_that_bfcl_shares_is_named():
    scenario = next(item for item in load_scenarios("multi_turn_long_context") if "TravelAPI" in item.classes)
    card = next(iter(load_padding().CREDIT_CARD_EXTENSION))
    spend = make_call("purchase_insurance", {"card_id": card, "insurance_cost": 5.0})
    look = make_call("get_credit_card_balance", {"card_id": card})
    assert applying_differences(conversation(scenario, [(spend,), *gold(scenario)[1:]]), scenario) == ("shared_cards",)
    assert applying_differences(conversation(scenario, [(look,), *gold(scenario)[1:]]), scenario) == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [("please cd (now)", ("call_like_text",)), ("f (x)", ("call_like_text",)), ("f(x)", ()), ("plain", ())],
)
def test_text_that_bfcl_rewrites_is_named(text, names):
    call = make_call("echo", {"content": text, "file_name": "n.txt"})
    assert applying_differences(conversation(BASE[0], [(call,), *gold(BASE[0])[1:]]), BASE[0]) == names


def test_an_unexplained_disagreement_is_shown_and_gives_its_exit_status(tmp_path, capsys):
    record = conversation(BASE[0], gold(BASE[0])).to_dict()
    record["turns"][0]["facts"]["passed_official"] = False
    (tmp_path / "episodes.jsonl").write_text(json.dumps({"episode": record}) + "\n")
    assert evaluate.main(["--records", str(tmp_path)]) == evaluate.DISAGREE_STATUS == 4
    assert "DISAGREE WITHOUT A LISTED DIFFERENCE: 1, such as multi_turn_base_0" in capsys.readouterr().out


def test_an_explained_disagreement_is_counted_under_its_name(capsys, tmp_path):
    call = make_call("echo", {"content": "please cd (now)", "file_name": "n.txt"})
    record = conversation(BASE[0], [(*gold(BASE[0])[0], call), *gold(BASE[0])[1:]]).to_dict()
    record["turns"][0]["facts"]["passed_official"] = False
    (tmp_path / "episodes.jsonl").write_text(json.dumps({"episode": record}) + "\n")
    assert evaluate.main(["--records", str(tmp_path)]) == 0
    assert "listed difference call_like_text: 1 episodes, 1 of them with another" in capsys.readouterr().out


def test_every_scenario_is_known_by_its_id():
    assert len(scenarios_by_id()) == 800
