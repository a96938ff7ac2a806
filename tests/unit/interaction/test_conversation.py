"""The conversation as a state machine: what it says, when it ends, and what the record then holds."""

import json
from dataclasses import asdict

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.policies import ANSWER, say, think_xml

import bfcl_env.environment
from bfcl_env import Call, Options, load_scenarios
from interaction import Conversation, EpisodeRecord, StopReason, get_protocol
from interaction.conversation import NOT_RUN
from interaction.environment import EnvironmentBase
from interaction.policy import read_policy
from recipe.settings import CONFIG_DIR
from rewards.metrics import episode_metrics

GARBAGE = "I would rather not."
LIST = Call("ls", {})
LS, CD_NOWHERE = say(LIST), say(Call("cd", {"folder": "nowhere"}))
MKDIR = say(Call("mkdir", {"dir_name": "unasked"}))
BASE = load_scenarios("multi_turn_base")[0]
GOLD = say(*BASE.turns[0].gold)


def play(messages, scenario=BASE, protocol=think_xml, cut=False, environment=None, **policy):
    """The last reply, and the record; every message but the last must leave the episode running."""
    policy |= {"environments": {"bfcl": environment}} if environment else {}
    with Conversation(scenario, protocol, **policy) as conversation:
        conversation.start()
        for number, text in enumerate(messages, start=1):
            last = number == len(messages)
            reply = conversation.reply(text, truncated=cut and last)
            assert last or not reply.done
        return reply, conversation.record()


def test_an_answer_brings_the_next_request_and_a_reply_says_what_the_model_can_see_was_wrong():
    assert play([GOLD, ANSWER])[0].messages == [{"role": "user", "content": BASE.turns[1].user}]
    both = say(LIST, Call("no_such", {}))
    seen = {LS: None, GARBAGE: "missing_think", both: "unknown_function", CD_NOWHERE: "result", ANSWER: None}
    assert {text: play([text])[0].wrong for text in seen} == seen
    assert play([LS], cut=True)[0].wrong == "truncated"
    assert play([GARBAGE], **FIRST)[0].wrong == "missing_think"
    reply, record = play([THREE], **FIRST)
    said = reply.messages[0]["content"]
    assert reply.wrong == "too_many_calls" and len(record.turns[0].steps[0].calls) == 1
    assert said.endswith(f",{','.join([json.dumps(NOT_RUN)] * 2)}]") and said.count(NOT_RUN) == 2


STEPS, ERRORS = "max_steps_per_turn", "max_format_errors_per_turn"
THREE, FIRST = say(LIST, LIST, LIST), {"calls_per_message": "first"}
OFFICIAL = {STEPS: 21, "environment": {"at_step_limit": "official"}}
LIMITS = {
    "one format error too many": ([GARBAGE, GARBAGE, LS, GARBAGE], {ERRORS: 2}, ("format_errors", "limit", False, 4)),
    "format errors of another turn": ([GARBAGE, ANSWER] * 2, {ERRORS: 1}, (None, "answer", False, 2)),
    "all steps of a turn": ([GOLD, LS, LS], {STEPS: 3}, ("max_steps", "limit", True, 3)),
    "an answer in the last allowed step": ([LS, ANSWER], {STEPS: 2}, (None, "answer", False, 2)),
    "all steps of an episode": ([GOLD, ANSWER], {"max_steps": 2}, ("max_steps", "answer", True, 2)),
    "one step left for the next turn": ([GOLD, ANSWER], {"max_steps": 3}, (None, "answer", True, 2)),
    "all steps of an episode in its first turn": ([GOLD, LS], {"max_steps": 2}, ("max_steps", "limit", True, 2)),
    "request, call and result, twice": ([GOLD, LS], {"max_messages": 4}, ("max_steps", "limit", True, 2)),
    "one message left": ([GOLD, LS], {"max_messages": 6}, (None, None, False, 2)),
    "two requests, call, result, answer": ([GOLD, ANSWER], {"max_messages": 5}, ("max_steps", "answer", True, 2)),
    "one left for the second request": ([GOLD, ANSWER], {"max_messages": 6}, (None, "answer", True, 2)),
    "two malformed messages": ([GARBAGE] * 2, {"max_messages": 5}, ("max_steps", "limit", False, 2)),
    "several calls where one is allowed": ([THREE] * 2, FIRST | {ERRORS: 1}, ("format_errors", "limit", False, 2)),
    "one call where one is allowed": ([LS, LS], FIRST | {ERRORS: 0, STEPS: 2}, ("max_steps", "limit", False, 2)),
    "a message that the budget cuts, none of which runs": ([GOLD, LS], {"cut": True}, ("max_tokens", "cut", False, 2)),
    "BFCL's own limit, which judges no earlier turn": ([GOLD, *[LS] * 20], OFFICIAL, ("max_steps", "cut", False, 21)),
}


def test_limits_end_the_episode_and_judge_the_turn_as_it_stands():
    for case, (messages, how, expected) in LIMITS.items():
        reply, record = play(messages, **how)
        first, *later = record.turns
        assert (reply.stop_reason, first.ended, first.passed, len(first.steps)) == expected, case
        if reply.done:
            assert not any(turn.reached or turn.passed or turn.ended or turn.steps for turn in later), case
        if how.get("cut"):
            assert (first.steps[-1].format_error, first.steps[-1].calls) == ("truncated", ())


def test_what_cannot_be_done_any_more_is_refused_and_why_it_ended_first_is_kept():
    made, closed = Conversation(BASE, think_xml), Conversation(BASE, think_xml)
    assert made.turn == 0
    closed.close()
    for wrong in (lambda: made.reply(LS), closed.start):
        with pytest.raises(RuntimeError):
            wrong()
    assert (closed.record().fault, closed.record().outcome) == ("closed before its end", None)
    made.start()
    made.reply(ANSWER, tokens=(3, 5), generate_seconds=0.5)
    made.stop(StopReason.infrastructure, "the engine")
    made.stop(StopReason.completed, "nothing")
    record = made.record()
    assert (record.stop_reason, record.fault, record.outcome.passed) == ("infrastructure", "the engine", False)
    step = record.turns[0].steps[0]
    assert (step.tokens, step.generate_seconds) == ((3, 5), 0.5) and 0 < step.environment_seconds < 60
    for wrong in (lambda: made.reply(LS), made.start, made.begin):
        with pytest.raises(RuntimeError):
            wrong()


def test_a_fault_of_the_environment_ends_the_episode_and_never_escapes(monkeypatch):
    def fail(*_, **__):
        raise OSError("disk on fire")

    hermes = get_protocol("hermes")
    for where, protocol, said in (
        ("__init__", think_xml, ANSWER),
        ("execute", think_xml, LS),
        ("end_turn", think_xml, ANSWER),
        ("beside", hermes, f"I look. {hermes.render_calls('', [LIST])}"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(EnvironmentBase if where == "beside" else bfcl_env.environment.Episode, where, fail)
            patch.setattr(bfcl_env.environment.Episode, "close", fail)
            reply, record = play([said], protocol=protocol)
        assert (reply.done, reply.messages, reply.stop_reason) == (True, [], StopReason.environment_error), where
        assert (record.stop_reason, record.fault) == (StopReason.environment_error, "OSError: disk on fire"), where
        assert not any(turn.passed for turn in record.turns), where


MOVES = st.sampled_from([GARBAGE, LS, CD_NOWHERE, ANSWER, "gold", "cut", "", "half a surrogate: \ud800"])


@settings(max_examples=60, deadline=None)
@given(st.lists(MOVES, max_size=40), st.sampled_from(["base", "miss_func", "miss_param"]), st.integers(0, 199))
def test_any_sequence_of_messages_gives_a_consistent_record(sequence, category, index):
    scenario = load_scenarios(f"multi_turn_{category}")[index]
    with Conversation(scenario, think_xml, max_steps_per_turn=5) as conversation:
        conversation.start()
        for move in sequence:
            gold = scenario.turns[conversation.turn].gold if move == "gold" else ()
            reply = conversation.reply(say(*gold) if gold else move, truncated=move == "cut")
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
    assert metrics["acc"] == (record.stop_reason == "completed" and all(turn.passed for turn in record.turns))
    data = json.loads(json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False).encode("utf-8"))
    assert data == record.to_dict() and EpisodeRecord.from_dict(data) == record


def test_what_bfcl_alone_lets_pass_is_a_setting():
    found = (item for item in load_scenarios("multi_turn_miss_param") if not item.turns[0].gold)
    scenario = next(item for item in found if "mkdir" in item.visible(0))
    for empty_gold, passed in (("state", False), ("official", True)):
        first = play([MKDIR, ANSWER], scenario, environment={"empty_gold": empty_gold})[1].turns[0]
        assert (first.passed, first.facts["passed_official"]) == (passed, True)


def test_the_base_configuration_names_every_setting_and_changes_no_default():
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        config = compose("base")
    for split in ("train", "val"):
        found = OmegaConf.to_container(config.interaction[split])
        assert found.pop("environments") == {"bfcl": asdict(Options())}
        assert found | {"environments": {}} == asdict(read_policy({}))


def test_the_share_of_results_that_were_cut_is_a_metric_and_a_hint_is_no_cut():
    reply, record = play([CD_NOWHERE], max_result_chars=100, environment={"augment": True})
    (hinted,) = record.turns[0].steps[0].calls
    assert hinted.hint and json.dumps(hinted.shown) in reply.messages[0]["content"]
    assert episode_metrics(record.to_dict())["results_cut"] == 0
    _, record = play([CD_NOWHERE, LS, MKDIR], max_result_chars=10)
    assert episode_metrics(record.to_dict())["results_cut"] == 2 / 3
