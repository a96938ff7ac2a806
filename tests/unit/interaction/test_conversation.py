"""The conversation as a state machine: what it says, when it ends, and what the record then holds."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bfcl_env.environment
import bfcl_env.episode
from bfcl_env import Call, load_scenarios
from interaction import Conversation, EpisodeRecord, StopReason, get_protocol
from rewards.metrics import episode_metrics

think_xml = get_protocol("think_xml")
GARBAGE = "I would rather not."
ANSWER = think_xml.render_answer("t", "done")
LS = think_xml.render_calls("t", [Call(name="ls", arguments={})])
CD_NOWHERE = think_xml.render_calls("t", [Call(name="cd", arguments={"folder": "nowhere"})])


def scenario_of(category, index):
    return load_scenarios(f"multi_turn_{category}")[index]


def gold_messages(scenario, turn):
    """What a perfect model writes in a turn."""
    gold = scenario.turns[turn].gold
    return ([think_xml.render_calls("t", gold)] if gold else []) + [ANSWER]


def play(conversation, messages):
    """Start, and reply until the messages or the episode are at an end. Returns the last reply."""
    conversation.start()
    reply = None
    for text in messages:
        reply = conversation.reply(text)
        if reply.done:
            break
    return reply


@pytest.fixture
def scenario():
    return scenario_of("base", 0)


@pytest.fixture
def conversation(scenario):
    with Conversation(scenario, think_xml) as conversation:
        yield conversation


def last_turn(conversation):
    return conversation.record().turns[conversation.turn]


def test_calls_bring_results_and_an_answer_brings_the_next_request(conversation, scenario):
    conversation.start()
    reply = conversation.reply(gold_messages(scenario, 0)[0])
    assert reply.messages[0]["content"].startswith("Results: [") and not reply.done
    reply = conversation.reply(ANSWER)
    assert reply.messages == [{"role": "user", "content": scenario.turns[1].user}]
    first = conversation.record().turns[0]
    assert first.passed and first.facts["passed_official"] and first.ended == "answer"
    assert [call.name for call in first.steps[0].calls] == [call.name for call in scenario.turns[0].gold]


def test_a_reply_says_what_the_model_can_see_was_wrong(conversation, scenario):
    conversation.start()
    both = think_xml.render_calls("t", [Call(name="ls", arguments={}), Call(name="no_such", arguments={})])
    seen = [conversation.reply(text).wrong for text in (LS, GARBAGE, both, CD_NOWHERE, ANSWER)]
    assert seen == [None, "missing_think", "unknown_function", "result", None]
    assert conversation.reply(LS, truncated=True).wrong == "truncated"


def test_one_format_error_more_than_allowed_ends_the_episode(scenario):
    with Conversation(scenario, think_xml, max_format_errors_per_turn=2) as conversation:
        reply = play(conversation, [GARBAGE, GARBAGE, LS, GARBAGE])
        assert reply.stop_reason == StopReason.format_errors
        assert last_turn(conversation).ended == "limit"


def test_format_errors_are_counted_anew_in_each_turn(scenario):
    with Conversation(scenario, think_xml, max_format_errors_per_turn=1) as conversation:
        assert not play(conversation, [GARBAGE, ANSWER, GARBAGE, ANSWER, GARBAGE]).done


def test_the_step_limit_ends_the_episode_and_judges_the_turn_as_it_stands(scenario):
    with Conversation(scenario, think_xml, max_steps_per_turn=3) as conversation:
        reply = play(conversation, [gold_messages(scenario, 0)[0], LS, LS])
        assert (reply.stop_reason, reply.messages) == (StopReason.max_steps, [])
        first, *later = conversation.record().turns
        assert first.passed and first.ended == "limit" and len(first.steps) == 3
        assert not any(turn.reached or turn.passed or turn.ended or turn.steps for turn in later)


def test_an_answer_in_the_last_allowed_step_goes_on_to_the_next_turn(scenario):
    with Conversation(scenario, think_xml, max_steps_per_turn=2) as conversation:
        assert not play(conversation, [LS, ANSWER]).done
        assert conversation.turn == 1


def test_a_message_cut_by_the_budget_ends_the_episode_and_runs_nothing(conversation, scenario):
    conversation.start()
    conversation.reply(gold_messages(scenario, 0)[0])
    reply = conversation.reply(LS, truncated=True)
    assert (reply.done, reply.stop_reason) == (True, StopReason.max_tokens)
    first = conversation.record().turns[0]
    assert (first.passed, first.ended) == (False, "cut")
    assert (first.steps[-1].well_formed, first.steps[-1].format_error) == (False, "truncated")
    assert first.steps[-1].calls == ()


def test_stopping_from_outside_fails_the_running_turn_and_keeps_the_finished_ones(conversation, scenario):
    play(conversation, [*gold_messages(scenario, 0), gold_messages(scenario, 1)[0]])
    conversation.stop(StopReason.max_tokens)
    conversation.stop(StopReason.infrastructure)
    record = conversation.record()
    assert record.stop_reason == StopReason.max_tokens
    assert [turn.passed for turn in record.turns[:2]] == [True, False]
    assert [turn.ended for turn in record.turns[:2]] == ["answer", "cut"]


class BrokenEpisode:
    """An environment that fails where it is told to."""

    def __init__(self, scenario, **settings):
        self.fail("init")

    def closeness(self):
        return None

    def execute(self, call):
        self.fail("execute")

    def end_turn(self, answered=True):
        self.fail("end_turn")

    def close(self):
        self.fail("close")


@pytest.mark.parametrize("where", ["init", "execute", "end_turn"])
def test_a_fault_of_the_environment_ends_the_episode_and_never_escapes(scenario, monkeypatch, where):
    class Broken(BrokenEpisode):
        def fail(self, place):
            if place in (where, "close"):
                raise OSError("disk on fire")

    monkeypatch.setattr(bfcl_env.environment, "Episode", Broken)
    with Conversation(scenario, think_xml) as conversation:
        messages = conversation.start()
        assert len(messages) == 2
        reply = conversation.reply(LS if where == "execute" else ANSWER)
        assert (reply.done, reply.messages, reply.stop_reason) == (True, [], StopReason.environment_error)
    record = conversation.record()
    assert record.stop_reason == StopReason.environment_error
    assert record.fault == "OSError: disk on fire"
    assert not any(turn.passed for turn in record.turns)


def test_misuse_raises_instead_of_passing_unseen(scenario):
    with Conversation(scenario, think_xml) as conversation:
        with pytest.raises(RuntimeError, match="start"):
            conversation.reply(ANSWER)
        conversation.start()
        with pytest.raises(RuntimeError, match="already"):
            conversation.start()
        conversation.stop(StopReason.max_tokens)
        with pytest.raises(RuntimeError, match="max_tokens"):
            conversation.reply(ANSWER)
    with pytest.raises(ValueError, match="max_steps_per_turn"):
        Conversation(scenario, think_xml, max_steps_per_turn=0)


def test_a_record_survives_json_unchanged(conversation, scenario):
    play(conversation, [GARBAGE, CD_NOWHERE, *gold_messages(scenario, 0), "half a surrogate: \ud800"])
    conversation.stop(StopReason.max_tokens)
    record = conversation.record()
    data = json.loads(json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False).encode("utf-8"))
    assert data == record.to_dict()
    assert EpisodeRecord.from_dict(data) == record


moves = st.sampled_from([GARBAGE, LS, CD_NOWHERE, ANSWER, "gold", "cut", ""])


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=40), st.sampled_from(["base", "miss_func", "miss_param"]), st.integers(0, 199))
def test_any_sequence_of_messages_gives_a_consistent_record(sequence, category, index):
    scenario = scenario_of(category, index)
    with Conversation(scenario, think_xml, max_steps_per_turn=5) as conversation:
        conversation.start()
        for move in sequence:
            text = gold_messages(scenario, conversation.turn)[0] if move == "gold" else move
            reply = conversation.reply(text, truncated=move == "cut")
            assert reply.done == (reply.stop_reason is not None) == (not reply.messages) == conversation.done
            if reply.done:
                break
    record = conversation.record()
    assert len(record.turns) == len(scenario.turns)
    reached = [turn.reached for turn in record.turns]
    assert reached == sorted(reached, reverse=True)
    assert all(turn.ended in ("answer", "limit") for turn in record.turns if turn.passed)
    assert all(len(turn.steps) <= 5 for turn in record.turns)
    assert record.stop_reason != StopReason.environment_error
    metrics = episode_metrics(record.to_dict())
    assert 0 <= metrics["progress"] <= metrics["progress_raw"] <= 1
