"""The facts that the step reward reads: which call is gold's, and how close a state is to gold's."""

import pytest

from bfcl_env import CATEGORIES, Call, Episode, load_scenarios
from interaction import Conversation, get_protocol
from interaction.record import EpisodeRecord

think_xml = get_protocol("think_xml")
BASE = load_scenarios("multi_turn_base")


def credit(episode, name, **arguments):
    call = Call(name, arguments)
    return episode.match_gold(call, episode.execute(call))


@pytest.mark.parametrize(
    ("index", "name", "arguments", "expected"),
    [
        (33, "ls", {}, 0),
        (33, "ls", {"a": False}, 0),  # gold leaves the default out
        (33, "ls", {"a": True}, None),
        (52, "startEngine", {"ignitionMode": "START"}, None),  # gold's call, but an error before the brake is pressed
        (98, "lockDoors", {"unlock": False, "door": ("driver", "passenger", "rear_left", "rear_right")}, 1),
        (98, "lockDoors", {"unlock": False, "door": ["driver"]}, None),
        (0, "no_such_function", {}, None),
    ],
)
def test_a_call_is_gold_by_function_arguments_and_result(index, name, arguments, expected):
    with Episode(BASE[index]) as episode:
        assert credit(episode, name, **arguments) == expected


def test_closeness_counts_the_attributes_that_gold_changes():
    with Episode(BASE[50]) as episode:
        assert episode.closeness() == 0
        episode.execute(Call("setHeadlights", {"mode": "on"}))
        assert episode.closeness() == pytest.approx(1 / 3)
        episode.execute(Call("setHeadlights", {"mode": "off"}))
        assert episode.closeness() == 0
    with pytest.raises(RuntimeError, match="closed"):
        episode.closeness()


@pytest.mark.parametrize("category", CATEGORIES)
def test_gold_play_credits_every_call_and_ends_each_turn_as_close_as_can_be(category):
    for scenario in load_scenarios(category)[::4]:
        with Episode(scenario) as episode:
            for turn in scenario.turns:
                results = [(call, episode.execute(call)) for call in turn.gold]
                assert [episode.match_gold(*item) for item in results] == list(range(len(results))), scenario.id
                assert episode.closeness() in (None, 1.0), scenario.id
                episode.end_turn()


def test_the_record_keeps_the_facts_and_survives_json():
    unlock = Call("lockDoors", {"unlock": True, "door": ["driver", "passenger", "rear_left", "rear_right"]})
    with Conversation(BASE[50], think_xml) as conversation:
        conversation.start()
        conversation.reply(think_xml.render_calls("t", [unlock, unlock]))
        conversation.reply(think_xml.render_answer("t", "done"))
        record = conversation.record()
    turn = record.turns[0]
    assert (turn.facts["gold_calls"], turn.facts["closeness"]) == (2, 0.0)
    assert [step.facts.get("closeness") for step in turn.steps] == [pytest.approx(2 / 3), None]
    assert [call.facts["gold"] for call in turn.steps[0].calls] == [0, None]
    assert EpisodeRecord.from_dict(record.to_dict()) == record
