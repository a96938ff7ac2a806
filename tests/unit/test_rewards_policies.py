"""Whole policies in the real environment: gold earns the maximum, and no trivial policy comes near it."""

import json

import pytest

from bfcl_env import CATEGORIES, Call, load_scenarios
from interaction import Conversation, get_protocol
from rewards import format as format_reward
from rewards import progress as progress_reward

think_xml = get_protocol("think_xml")
ANSWER = think_xml.render_answer("done", "done")


def render(*calls):
    return think_xml.render_calls(", ".join(call.name for call in calls), calls)


def plain(value):
    """As JSON reads it back: tuples are lists."""
    return json.loads(json.dumps(value))


def gold(scenario, turn):
    calls = scenario.turns[turn].gold
    return [render(*calls), ANSWER] if calls else [ANSWER]


def answer_always(scenario, turn):
    return [ANSWER]


def one_call_then_answers(scenario, turn):
    return [render(first_call(scenario)), ANSWER] if turn == 0 else [ANSWER]


def repeat_one_read_only_call(scenario, turn):
    """The first function that needs no arguments, in every turn."""
    return [render(first_call(scenario)), ANSWER]


def forty_times_the_same_beside_an_error(scenario, turn):
    return [render(Call(name="no_such_function", arguments={"x": 1}), *[first_call(scenario)] * 39), ANSWER]


def calls_inside_the_answer(scenario, turn):
    calls = [{"name": call.name, "arguments": call.arguments} for call in scenario.turns[turn].gold]
    return [think_xml.render_answer("t", json.dumps(calls))]


def call_withheld_functions(scenario, turn):
    names = [name for later in scenario.turns[turn + 1 :] for name in later.revealed]
    return [render(*[Call(name=name, arguments={}) for name in names] or [first_call(scenario)]), ANSWER]


def stop_after_one_good_turn(scenario, turn):
    return gold(scenario, turn) if turn == 0 else ["cut"]


def skip_the_first_turn_with_gold(scenario, turn):
    return [ANSWER] if not any(earlier.gold for earlier in scenario.turns[:turn]) else gold(scenario, turn)


def garbage(scenario, turn):
    return ["<tool_call>" + "[" * 50] * 9


def first_call(scenario):
    for function in scenario.functions(0):
        if not function["parameters"].get("required"):
            return Call(name=function["name"], arguments={})
    return Call(name=scenario.functions(0)[0]["name"], arguments={})


POLICIES = [
    answer_always,
    one_call_then_answers,
    repeat_one_read_only_call,
    forty_times_the_same_beside_an_error,
    calls_inside_the_answer,
    call_withheld_functions,
    stop_after_one_good_turn,
    skip_the_first_turn_with_gold,
    garbage,
]


def play(scenario, policy):
    """The record of an episode in which `policy` writes the messages of each turn."""
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        while not conversation.done:
            for text in policy(scenario, conversation.turn):
                if conversation.reply(text, truncated=text == "cut").done:
                    break
    return conversation.record().to_dict()


def scores(record):
    extra_info = {"episode": record}
    return (
        format_reward.compute_score("bfcl", "", None, extra_info)["score"],
        progress_reward.compute_score("bfcl", "", None, extra_info),
    )


@pytest.mark.parametrize("category", CATEGORIES)
def test_gold_conversations_parse_back_to_gold_and_earn_the_maximum(category):
    scenarios = load_scenarios(category)
    assert len(scenarios) == 200
    for scenario in scenarios:
        for turn in scenario.turns:
            if turn.gold:
                parsed = think_xml.parse(render(*turn.gold))
                assert [(call.name, call.arguments) for call in parsed.calls] == [
                    (call.name, plain(call.arguments)) for call in turn.gold
                ]
        formatted, progress = scores(play(scenario, gold))
        assert formatted == pytest.approx(2.0), scenario.id
        assert (progress["score"], progress["acc"], progress["acc_official"]) == (1.0, 1.0, 1.0), scenario.id


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
@pytest.mark.parametrize("category", CATEGORIES)
def test_no_way_around_the_task_earns_what_gold_earns(category, policy):
    for scenario in load_scenarios(category)[:40]:
        formatted, progress = scores(play(scenario, policy))
        assert formatted < 2.0 and progress["score"] < 1.0 and progress["acc"] == 0.0, scenario.id


@pytest.mark.parametrize("category", CATEGORIES)
def test_answering_always_makes_no_progress(category):
    for scenario in load_scenarios(category):
        assert scores(play(scenario, answer_always))[1]["score"] == 0.0


def test_skipping_a_turn_does_not_make_later_turns_pass_more_easily():
    """Gold runs whatever the model did. A checker that skips it lets this policy pass every later turn."""
    scenarios = load_scenarios("multi_turn_base")
    mean = sum(scores(play(scenario, skip_the_first_turn_with_gold))[1]["score"] for scenario in scenarios) / len(
        scenarios
    )
    assert 0.3 < mean < 0.5
