"""One message: how it is judged, by our rule and by the leaderboard's, and that nothing in it can do harm."""

import json
import time

import pytest

from bfcl_env.single_turn.environment import LONGEST_NAME, ONE_MESSAGE
from interaction import Conversation, get_protocol
from interaction.call import Call
from interaction.environment import load_tasks
from interaction.outcome import ErrorKind
from recipe.tools.policies import HOSTILE, WRONG_TYPES
from rewards import all_or_nothing, outcome, progress, step
from rewards import format as format_reward

TASKS = load_tasks("bfcl_single")
XML = get_protocol("think_xml")
REWARDS = (progress, all_or_nothing, outcome, step, format_reward)
JUNK = "no tags at all"


def first(category):
    return next(task for task in TASKS.values() if task.category == category)


def gold_of(task):
    return next(iter(task.gold())).calls


def said(task, text, **settings):
    with Conversation(task, XML, **settings) as conversation:
        conversation.start()
        reply = conversation.reply(text)
        return reply, conversation.record()


def calling(task, calls):
    return said(task, XML.render_calls("t", calls))[1]


def answering(task):
    return said(task, XML.render_answer("t", "I cannot."))[1]


def official(record):
    return record.turns[0].facts["passed_official"]


def paid(record):
    """What each reward pays, as a share of its most."""
    most = {step: 3.0, format_reward: 2.0}
    row = {"episode": record.to_dict()}
    return [reward.compute_score("", "", "", row)["score"] / most.get(reward, 1.0) for reward in REWARDS]


@pytest.mark.parametrize("category", dict.fromkeys(task.category for task in TASKS.values()))
def test_whatever_the_message_is_it_is_the_only_one(category):
    task = first(category)
    for text in (XML.render_calls("t", [Call("f", {})]), XML.render_answer("t", "x"), JUNK, ""):
        reply, record = said(task, text, max_format_errors_per_turn=3)
        assert reply.done and not reply.messages and record.stop_reason == "done"
        assert len(record.turns) == 1 and record.turns[0].user == task.messages[-1]["content"]


def test_gold_earns_the_most_of_every_reward():
    for task in list(TASKS.values())[::7]:
        for message in task.gold():
            record = calling(task, message.calls) if message.calls else answering(task)
            assert paid(record) == [1.0] * len(REWARDS), task.id


@pytest.mark.parametrize("category", ["simple_python", "simple_java", "multiple", "parallel", "live_parallel_multiple"])
def test_a_wrong_value_does_not_pass_and_is_told(category):
    task = first(category)
    *others, last = gold_of(task)
    name, value = next(iter(last.arguments.items()))
    wrong = Call(last.name, {**last.arguments, name: f"{value}9" if isinstance(value, str) else -98765})
    record = calling(task, [*others, wrong])
    assert not record.outcome.passed and not official(record)
    assert any(name in item["where"] for item in record.turns[0].difference), record.turns[0].difference
    assert max(paid(record)) < 1


def test_calls_of_parallel_tasks_may_come_in_any_order():
    task = first("parallel_multiple")
    calls = gold_of(task)
    assert len(calls) > 1
    record = calling(task, calls[::-1])
    assert record.outcome.passed and paid(record) == [1.0] * len(REWARDS)
    assert sorted(call.facts["gold"] for call in record.turns[0].steps[0].calls) == list(range(len(calls)))


def test_one_call_of_several_is_part_of_the_work_for_the_step_reward_only():
    task = first("parallel")
    calls = gold_of(task)
    record = calling(task, calls[:1])
    assert not record.outcome.passed and [call.facts["gold"] for call in record.turns[0].steps[0].calls] == [0]
    repeated = calling(task, [calls[0]] * len(calls))
    assert [call.facts["gold"] for call in repeated.turns[0].steps[0].calls] == [0, *[None] * (len(calls) - 1)]


def test_more_calls_than_are_asked_for_do_not_pass():
    for category in ("simple_python", "multiple", "parallel"):
        task = first(category)
        record = calling(task, [*gold_of(task), gold_of(task)[0]])
        assert not record.outcome.passed and not official(record)


def test_where_no_function_helps_only_an_answer_passes_and_junk_passes_officially():
    for category in ("irrelevance", "live_irrelevance"):
        task = first(category)
        call = calling(task, [Call(task.functions[0]["name"], {})])
        junk = said(task, JUNK)[1]
        assert [answering(task).outcome.passed, junk.outcome.passed, call.outcome.passed] == [True, False, False]
        assert [official(answering(task)), official(junk), official(call)] == [True, True, False]
        assert not call.turns[0].facts["has_gold"] and call.turns[0].difference and junk.turns[0].difference


def test_where_a_function_helps_a_call_that_fits_its_documentation_passes():
    task = first("live_relevance")
    assert not list(task.gold())
    function = task.functions[0]
    required = function["parameters"]["required"]
    fits = calling(task, [Call(function["name"], dict.fromkeys(required, "x"))])
    surplus = calling(task, [Call(function["name"], {**dict.fromkeys(required, "x"), "no such": 1})])
    unknown = calling(task, [Call("no_such", {})])
    records = [fits, surplus, unknown, answering(task)]
    assert [record.outcome.passed for record in records] == [True, False, False, False]
    assert [official(record) for record in records] == [True, True, True, False]
    assert all(bool(record.turns[0].difference) != record.outcome.passed for record in records)
    assert paid(fits) == [1.0] * len(REWARDS) and max(paid(answering(task))) < 1


def test_what_is_wrong_by_the_documentation_is_an_error_of_its_kind():
    task = first("simple_python")
    (call,) = gold_of(task)
    missing = {name: value for name, value in call.arguments.items() if name != next(iter(call.arguments))}
    environment = task.open()
    environment.begin()
    assert environment.call(call).error is None
    assert environment.call(Call("x" * 10_000, {})).error == ErrorKind.UNKNOWN_FUNCTION
    assert len(environment.call(Call("x" * 10_000, {})).text) < 3 * LONGEST_NAME
    assert environment.call(Call(call.name, missing)).error == ErrorKind.BAD_ARGUMENTS
    assert environment.call(Call(call.name, {**call.arguments, "more": 1})).error == ErrorKind.BAD_ARGUMENTS
    assert environment.call(Call(call.name, {}, positional=(1,))).error == ErrorKind.BAD_ARGUMENTS
    environment.answer("done")
    assert environment.call(call).error == ErrorKind.LIMIT


def test_a_system_message_is_the_policy_and_what_was_said_before_stands_before_the_request():
    task = TASKS["live_irrelevance_125-11-0"]
    asked = task.open().begin()
    roles = [message["role"] for message in task.messages]
    assert roles == ["system", "user", "assistant", "user"]
    system, *talk = [message["content"] for message in task.messages]
    assert (
        asked.policy == f"{system.strip()}\n\n{ONE_MESSAGE}"
        and asked.user.endswith(talk[-1])
        and system not in asked.user
    )
    assert [asked.user.index(f"{role}: {text}") for role, text in zip(roles[1:3], talk[:2], strict=True)] == sorted(
        asked.user.index(text) - len(f"{role}: ") for role, text in zip(roles[1:3], talk[:2], strict=True)
    )
    opened = Conversation(task, XML).start()
    assert opened[0]["content"].startswith(system.strip()) and opened[1]["content"] == asked.user


def test_functions_of_java_and_javascript_ask_for_text_and_say_what_it_holds():
    for category, language in (("simple_java", "Java"), ("simple_javascript", "JavaScript")):
        for task in TASKS.values():
            if task.category != category:
                continue
            for shown, own in zip(task.open().begin().functions, task.functions, strict=True):
                assert shown["description"] != own["description"] and language in shown["description"]
                for name, schema in shown["parameters"]["properties"].items():
                    assert schema["type"] == "string" and "items" not in schema and language in schema["description"]
                    assert own["parameters"]["properties"][name]["description"] in schema["description"]
    python = first("multiple")
    assert list(python.open().begin().functions) == python.functions


@pytest.mark.parametrize("category", ["simple_python", "simple_java", "simple_javascript", "parallel", "irrelevance"])
def test_hostile_arguments_and_texts_are_judged_and_nothing_raises(category):
    task = first(category)
    function = task.functions[0]
    names = list(function["parameters"]["properties"])
    before = time.process_time()
    for value in (*HOSTILE, *WRONG_TYPES, "new HashMap<" * 20_000, "[" + "['a'," * 20_000, {"a": "x" * 10_000}):
        environment = task.open()
        environment.begin()
        for name in (function["name"], "no_such", str(value)[:500]):
            environment.call(Call(name, dict.fromkeys(names, value)))
            environment.call(Call(name, {str(value): value}))
        verdicts = environment.verdicts()
        assert not verdicts.passed and len(json.dumps([dict(item) for item in verdicts.turns[0].difference])) < 20_000
        environment.close()
        environment.close()
    assert time.process_time() - before < 5, "seconds of CPU"


def test_attempts_at_one_task_share_nothing():
    task = first("simple_python")
    one, other = task.open(), task.open()
    one.begin().functions[0].clear()
    (call,) = gold_of(task)
    one.call(call)
    other.call(call)
    assert other.begin().functions[0] and one.verdicts().passed and other.verdicts().passed
