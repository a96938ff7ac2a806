"""Whole policies on all scenarios of the real environment: gold earns the maximum, answering and skipping do not."""

import json

import pytest

from bfcl_env import CATEGORIES, load_scenarios
from interaction import Conversation, get_protocol
from rewards import format as format_reward
from rewards import progress as progress_reward
from rewards import step as step_reward

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


def skip_the_first_turn_with_gold(scenario, turn):
    return [ANSWER] if not any(earlier.gold for earlier in scenario.turns[:turn]) else gold(scenario, turn)


def play(scenario, policy):
    """The record of an episode in which `policy` writes the messages of each turn."""
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        while not conversation.done:
            for text in policy(scenario, conversation.turn):
                if conversation.reply(text).done:
                    break
    return conversation.record().to_dict()


def scores(record):
    extra_info = {"episode": record}
    return (
        format_reward.compute_score("bfcl", "", None, extra_info)["score"],
        progress_reward.compute_score("bfcl", "", None, extra_info),
        step_reward.compute_score("bfcl", "", None, extra_info)["step_share"],
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
        formatted, progress, step_share = scores(play(scenario, gold))
        assert (formatted, step_share) == (pytest.approx(2.0), pytest.approx(1.0)), scenario.id
        assert (progress["score"], progress["acc"], progress["acc_official"]) == (1.0, 1.0, 1.0), scenario.id


@pytest.mark.parametrize("category", CATEGORIES)
def test_answering_always_makes_no_progress(category):
    for scenario in load_scenarios(category):
        _, progress, step_share = scores(play(scenario, answer_always))
        assert (progress["score"], step_share) == (0.0, 0.0)


def test_skipping_a_turn_does_not_make_later_turns_pass_more_easily():
    """Gold runs whatever the model did. A checker that skips it lets this policy pass every later turn."""
    scenarios = load_scenarios("multi_turn_base")
    mean = sum(scores(play(scenario, skip_the_first_turn_with_gold))[1]["score"] for scenario in scenarios) / len(
        scenarios
    )
    assert 0.3 < mean < 0.5
