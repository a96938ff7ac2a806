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

from bfcl_env import CATEGORIES, Call, load_scenarios, make_call
from bfcl_env.leaderboard.checker import judge_in_fork
from bfcl_env.leaderboard.official import CALL_OF_NOTHING, OfficialChecker, applying_differences, call_text
from bfcl_env.proof.mutants import READ_ONLY, mutants
from bfcl_env.source import function_docs, load_padding
from interaction import Conversation, get_protocol
from interaction.record import CallRecord, EpisodeRecord
from recipe import evaluate
from recipe.evaluation.results import Judged, agreement

PROTOCOL = get_protocol("hermes")
BASE = load_scenarios("multi_turn_base")
FUNCTIONS = {name for cls in BASE[0].classes for name in function_docs()[cls]}


@pytest.fixture(scope="module")
def checker():
    with OfficialChecker() as checker:
        yield checker


def gold(scenario):
    return [turn.gold for turn in scenario.turns]


def turn_where(wanted):
    """A task and the number of a later turn of it whose calls of gold are so."""
    return next((item, at) for item in BASE for at in range(1, len(item.turns)) if wanted(item.turns[at].gold))


def conversation(scenario, turns, protocol=PROTOCOL, *, last_answer=True, policy=None, **settings):
    """The record of a model that makes these calls in each turn, 40 a message, and then answers."""
    rules = {"at_step_limit": "official", "withheld": "official"} | settings
    with Conversation(scenario, protocol, environments={"bfcl": rules}, **(policy or {})) as played:
        played.start()
        for number, calls in enumerate(turns):
            for start in range(0, len(calls), 40):
                played.reply(protocol.render_calls("", calls[start : start + 40]))
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
    return [bool(item.official.valid) for item in judged], found


@pytest.mark.parametrize(("every", "count"), [(40, 110), pytest.param(1, 5500, marks=pytest.mark.slow)])
def test_both_verdicts_agree_on_gold_of_every_category_and_on_mutants_of_it(checker, every, count):
    assert len({scenario.id for scenario in load_scenarios()}) == 800
    for category in CATEGORIES:
        scenarios = load_scenarios(category)[::every]
        valid, found = compare(checker, [conversation(item, gold(item)) for item in scenarios])
        assert all(valid) and found["differences"] == {} and found["agree"] == len(scenarios), category
    valid, found = compare(checker, [conversation(item.scenario, item.turns) for item in mutants(20261121, count)])
    assert count / 5 < sum(valid) < count * 4 / 5 and found["without_listed_difference"] > 0.9 * count


def test_a_conversation_that_stops_early_fails_as_force_terminated_by_both(checker):
    scenario = BASE[0]
    looks = [(make_call("pwd", {}),) * 40 * 21]  # the 21st message ends the episode in a turn that is not the last
    limit = conversation(scenario, looks, last_answer=False, policy={"max_steps_per_turn": 21})
    for record in (conversation(scenario, gold(scenario)[:-1]), limit):
        assert checker.judge(record).reason == "multi_turn:force_terminated" and not passed_official(record)
    scenario = next(item for item in BASE if len(item.turns) == 1)
    once = {"last_answer": False, "policy": {"max_steps_per_turn": 1}, "at_step_limit": "judge"}
    record = conversation(scenario, gold(scenario), **once)
    assert record.stop_reason == "max_steps" and passed_official(record) and checker.judge(record).valid


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
    scenario, turn = turn_where(lambda calls: calls and {call.name for call in calls} <= READ_ONLY)
    turns = gold(scenario)
    turns[turn - 1] += turns[turn]
    for calls, passes in (((make_call("nowhere", {}),), True), ((), False)):
        turns[turn] = calls
        record = conversation(scenario, turns)
        assert checker.judge(record).valid == passed_official(record) == passes


def test_a_tuple_that_the_file_has_as_a_list_is_judged_as_the_tuple_it_was(checker):
    """BFCL compares values, so a tuple where gold has a list is another state."""
    scenario, turn = turn_where(lambda of: [(it.name, "tags" in it.arguments) for it in of] == [("post_tweet", True)])
    for kind, passes in ((list, True), (tuple, False)):
        turns = gold(scenario)
        arguments = dict(turns[turn][0].arguments)
        turns[turn] = (Call("post_tweet", arguments | {"tags": kind(arguments["tags"])}),)
        record = conversation(scenario, turns, get_protocol("python_calls"))
        record = EpisodeRecord.from_dict(json.loads(json.dumps(record.to_dict())))
        assert checker.judge(record).valid == passed_official(record) == passes


def with_calls(record, *calls, all_of=False):
    """The record with these calls in the first step of its first turn, behind its own or instead of them."""
    turn = record.turns[0]
    step = replace(turn.steps[0], calls=calls if all_of else (*turn.steps[0].calls, *calls))
    return replace(record, turns=(replace(turn, steps=(step, *turn.steps[1:])), *record.turns[1:]))


def test_nothing_that_a_model_writes_is_executed_by_the_checker(checker, tmp_path):
    """Records may come from anywhere, so they are made here without any parser that would have refused them."""
    played, mark = conversation(BASE[0], gold(BASE[0])), tmp_path / "mark"
    system, opened = f"__import__('os').system('touch {mark}')", f"open('{mark}', 'w')"
    names = (f"{system} or cd", f"{opened}.close", f"cd(folder='x') or {opened}.close", "exec", "(exit)", "os.system")
    names += ("sys.exit", "GorillaFileSystem.ls", "_load_scenario", "cd.__globals__")
    texts = (system, f"' + str({opened}) + '", f"\rm ({opened})", f"\\' + str({opened}) + \\'", f"\tail({system})")
    texts += ("\\", "'''", "{mark}", f"a\nimport os; os.system('touch {mark}')\n", "\ud800 cd (x)")
    keys = (f"folder={system}, x", f"folder)or {opened}.close(", "**{}, folder", "lambda", "")
    calls = [Call(name, {"folder": "x"}) for name in names] + [Call("cd", {key: "x"}) for key in keys]
    calls += [Call("echo", {"content": text, "file_name": "f"}) for text in texts]
    for call in [*calls, *(Call("cd", {"folder": [text, {text: text}]}) for text in texts)]:
        record = CallRecord(call.name, call.arguments, "", None, None)
        verdict = checker.judge(with_calls(played, record))
        assert verdict.valid is not None and os.listdir(tmp_path) == [], (call, verdict)
        if call.name not in ("echo", "cd"):
            assert call_text(record, BASE[0]) == CALL_OF_NOTHING
    assert checker.judge(played).valid
    other_class = CallRecord("add", {"a": 1.0, "b": 2.0}, "")
    assert call_text(other_class, next(item for item in BASE if "MathAPI" not in item.classes)) == CALL_OF_NOTHING


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(), items, max_size=3),
    max_leaves=6,
)


@given(
    name=st.sampled_from(sorted(FUNCTIONS)) | st.text(max_size=20),
    arguments=st.dictionaries(st.sampled_from(["folder", "a", "file_name"]) | st.text(max_size=8), json_values),
)
def test_the_text_of_a_call_is_one_call_of_a_known_function_with_literals(name, arguments):
    text = call_text(CallRecord(name, arguments, ""), BASE[0])
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args
    if text != CALL_OF_NOTHING:
        assert tree.func.id == name in FUNCTIONS
        assert {item.arg: ast.literal_eval(item.value) for item in tree.keywords} == arguments


def test_whatever_the_evaluated_text_does_there_is_an_answer_and_the_next_is_judged(tmp_path, monkeypatch, checker):
    maths = next(item for item in BASE if "MathAPI" in item.classes)
    endless = CallRecord("square_root", {"number": 2, "precision": 50_000_000}, "Error ...", None, "limit")
    record = conversation(maths, gold(maths))
    with OfficialChecker(cpu_seconds=1) as quick:
        verdict = quick.judge(with_calls(record, endless, all_of=True))
        assert verdict.valid is None and verdict.differences == ("limits",)
        assert quick.judge(record).valid
    wrong = conversation(BASE[0], [(make_call("mkdir", {"dir_name": "mine"}),), *gold(BASE[0])[1:]])
    right = conversation(BASE[0], gold(BASE[0]))
    assert [checker.judge(record).valid for record in (wrong, right, wrong, right)] == [False, True, False, True]
    mark = tmp_path / "mark"
    for said, deed in {
        "MemoryError": lambda mark: bytearray(20 * 10**9),
        "OSError: .*File too large": lambda mark: mark.write_text("x"),
        "no verdict within 6 s": lambda mark: time.sleep(60),
        "SystemExit": lambda mark: sys.exit("x"),
        "ended with status": lambda mark: os._exit(7),
        "ended by SIGKILL": lambda mark: os.kill(os.getpid(), signal.SIGKILL),
    }.items():
        monkeypatch.setattr("bfcl_env.leaderboard.checker.verdict", lambda *_, deed=deed: deed(mark))
        answer = judge_in_fork(BASE[0], [], cpu_seconds=1, memory_bytes=10**10)
        assert re.match(said, answer["fault"]), answer
        assert not mark.exists() or mark.read_text() == ""


def test_listed_differences_are_named():
    travel = next(item for item in load_scenarios("multi_turn_long_context") if "TravelAPI" in item.classes)
    card = next(iter(load_padding().CREDIT_CARD_EXTENSION))
    cases = [
        (travel, make_call("purchase_insurance", {"card_id": card, "insurance_cost": 5.0}), ("shared_cards",)),
        (travel, make_call("get_credit_card_balance", {"card_id": card}), ()),
    ]
    for text, names in {"please cd (now)": ("call_like_text",), "f (x)": ("call_like_text",), "f(x)": ()}.items():
        cases.append((BASE[0], make_call("echo", {"content": text, "file_name": "n.txt"}), names))
    for scenario, call, names in cases:
        assert applying_differences(conversation(scenario, [(call,), *gold(scenario)[1:]]), scenario) == names, call


def test_a_disagreement_is_counted_and_gives_its_exit_status_unless_it_is_listed(tmp_path, capsys):
    listed = make_call("echo", {"content": "please cd (now)", "file_name": "n.txt"})
    for extra, status, said in (
        ((), 4, "DISAGREE WITHOUT A LISTED DIFFERENCE: 1, such as multi_turn_base_0"),
        ((listed,), 0, "listed difference call_like_text: 1 episodes, 1 of them with another"),
    ):
        record = conversation(BASE[0], [(*gold(BASE[0])[0], *extra), *gold(BASE[0])[1:]]).to_dict()
        record["turns"][0]["facts"]["passed_official"] = False
        (tmp_path / "episodes.jsonl").write_text(json.dumps({"episode": record}) + "\n")
        assert evaluate.main(["--records", str(tmp_path)]) == status
        assert said in capsys.readouterr().out
