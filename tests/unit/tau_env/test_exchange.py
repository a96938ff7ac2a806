"""tau's tasks as conversations: alone with a ticket, with a user who is asked, and how each of them ends."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from interaction import Conversation, StopReason, get_protocol
from interaction.call import Call
from interaction.environment import Task, UserWords, load_tasks
from interaction.gold import play_gold
from interaction.record import EpisodeRecord
from interaction.users import UserFault
from rewards.outcome import compute_score
from tau_env.environment import SILENT
from tau_env.exchange import STOP, written
from tau_env.tasks import DOMAINS
from tau_env.verdict import needless

PROTOCOL = get_protocol("think_xml", docs="signature")
SHORT = {"environments": {"tau": {"policy": "none"}}, "max_steps_per_turn": 40}

TASKS, DATA_OFF = load_tasks("tau"), "telecom_solo/[mobile_data_issue]data_mode_off["


def one(start: str) -> Any:
    """The first task whose id begins so."""
    return next(task for name, task in TASKS.items() if name.startswith(start))


def played(task: Task, *messages: Call | str) -> EpisodeRecord:
    """A solo episode of these calls and answers."""
    with Conversation(task, PROTOCOL, **SHORT) as conversation:
        conversation.start()
        for message in messages:
            answers = isinstance(message, str)
            render = PROTOCOL.render_answer("t", message) if answers else PROTOCOL.render_calls("t", [message])
            conversation.reply(render)
        return conversation.record()


def test_gold_passes_officially_and_cleanly_and_the_expert_looks_first() -> None:
    for task in [*TASKS.values()][::46]:
        for shown in ("gold", "expert") if task.mode == "solo" else ("gold",):
            _, record = play_gold(replace(task, shown=shown), PROTOCOL, **SHORT)
            assert record.outcome is not None and record.outcome.passed, (task.id, record.outcome, record.fault)
            assert record.facts["passed_official"] and record.facts["clean"] and not record.facts["needless"], task.id
            if shown == "expert":
                assert record.turns[0].steps[0].calls[0].name == "check_network_status", task.id


def test_an_episode_alone_ends_with_done_or_a_transfer_and_words_to_nobody_do_not_pass() -> None:
    task, fix, done = one(DATA_OFF), Call("toggle_data", {}), Call("done", {})
    transfer = Call("transfer_to_human_agents", {"summary": "x"})
    ends = {
        "fixed": ((fix, done), True, StopReason.done),
        "not fixed": ((done,), False, StopReason.done),
        "fixed and told nobody": ((fix, "It works."), False, StopReason.completed),
        "handed over": ((transfer,), False, StopReason.transfer),
        "not ended": ((fix,), False, None),
        "fixed and handed over": ((fix, transfer), False, StopReason.transfer),
    }
    for name, (messages, passes, reason) in ends.items():
        record = played(task, *messages)
        assert record.stop_reason == reason, name
        assert bool(record.outcome and record.outcome.passed) == passes, name
    assert record.facts["passed_official"] and record.facts["needless"] == ["agent: transfer_to_human_agents"]
    beyond_repair = one("telecom_solo/[service_issue]lock_sim_card_pin[")
    assert played(beyond_repair, transfer).facts["clean"]
    failed = played(beyond_repair, Call("transfer_to_human_agents", {}), done)
    assert failed.facts["passed_official"] and not failed.facts["clean"]


def test_what_was_not_needed_passes_officially_and_is_not_clean() -> None:
    twice = [Call("toggle_data_saver_mode", {})] * 2
    record = played(one(DATA_OFF), *twice, Call("toggle_data", {}), Call("done", {}))
    assert record.facts["passed_official"] and not record.facts["clean"] and record.facts["writes"] == 3
    assert len(record.facts["needless"]) == 2 and record.outcome is not None and not record.outcome.passed
    needless = [call.facts.get("needless") for step in record.turns[0].steps for call in step.calls]
    assert needless == [True, True, None, None]
    episode = {"episode": record.to_dict()}
    rules: dict[str, Any] = {"official": {}, "clean": {}, "priced": {"price": 0.3}}
    paid = [compute_score("tau", "", "[]", episode, rule=rule, **more)["score"] for rule, more in rules.items()]
    assert paid == [1.0, 0.0, pytest.approx(0.4)]


def test_words_beside_a_call_and_numbers_within_others_count_officially_alone() -> None:
    hermes, tasks = get_protocol("hermes"), [task for task in TASKS.values() if task.task.communicate]
    assert len(tasks) == 44
    for task in tasks:
        with Conversation(task, hermes, **SHORT) as conversation:
            conversation.begin()
            for item in task.gold():
                if isinstance(item, UserWords):
                    if item.text == STOP:
                        look = hermes.render_calls("", [Call("calculate", {"expression": "1"})])
                        conversation.reply(f"{' '.join(task.task.communicate)}\n{look}")
                        conversation.reply(f"See #W{'#W'.join(task.task.communicate)}.")
                    conversation.hear(item.text)
                elif item.calls:
                    conversation.reply(hermes.render_calls("", item.calls))
            record = conversation.record()
        assert record.outcome and not record.outcome.passed and record.outcome.components["communicate"] == 0, task.id
        assert record.facts["passed_official"] and record.turns[0].difference, task.id


# A user who is asked.


class Talk:
    """A conversation with a user; `shown` is what its model was shown last."""

    def __init__(self, task: Task) -> None:
        self.conversation = Conversation(task, PROTOCOL, **SHORT)
        self._note(self.conversation.begin())

    def _note(self, reply: Any) -> Any:
        if reply.ask is not None:
            self.shown = "\n".join(message["content"] for message in reply.ask.messages)
        return reply

    def say(self, words: str) -> Any:
        return self._note(self.conversation.hear(words))

    def answer(self, text: str) -> Any:
        return self._note(self.conversation.reply(PROTOCOL.render_answer("t", text)))


def asked(answer: str) -> Talk:
    """A user whose problem the agent answers."""
    now = Talk(one("telecom/[mobile_data_issue]data_mode_off["))
    reply = now.say("My data does not work.")
    assert reply.messages[1]["content"] == "My data does not work."
    assert "toggle_data" not in reply.messages[0]["content"]  # the device is the user's
    now.answer(answer)
    return now


def test_a_user_ends_the_conversation_with_a_mark_and_makes_calls_that_the_agent_does_not_see() -> None:
    for mark in ("###STOP###", "Bye. ###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"):
        now = asked("Hm.")
        reply = now.say(mark)
        assert reply.done and reply.stop_reason == StopReason.user_stop, mark
    now = asked("Please turn mobile data on.")
    reply = now.say(f"I will. {written(Call('toggle_data', {}))}")
    assert reply.ask is not None and "Mobile Data is now ON" in now.shown
    reply = now.say("It is on now.")
    assert [message["content"] for message in reply.messages] == ["I will.\nIt is on now."]
    now.answer("Then it works.")
    now.say("###STOP###")
    record = now.conversation.record()
    assert record.outcome is not None and record.outcome.passed and record.facts["writes"] == 1


def test_a_user_who_spoke_beside_a_call_may_be_silent_and_one_who_did_not_is_asked_in_other_words() -> None:
    call = written(Call("toggle_data", {}))
    for words, then, heard in ((f"I will. {call}", "", "I will."), (call[:-3], "Hm?", "Hm?"), (call, "On.", "On.")):
        now = asked("Hm.")
        now.say(words)
        before = now.shown
        assert not then or (now.say("").ask is not None and now.shown != before)
        assert [message["content"] for message in now.say(then).messages] == [heard]
        assert now.answer("Good.").ask is not None and SILENT not in now.shown
    assert asked("Hm.").say(f"Bye. {call} ###STOP###").ask is not None, "the call is made first"
    with pytest.raises(UserFault, match="said nothing"):
        [now.say("") for _ in range(4)]


def test_what_is_no_call_of_the_device_is_answered_with_an_error() -> None:
    for words in (
        "<tool_call>{</tool_call>",
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "toggle_data", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "get_customer_by_id", "arguments": {"customer_id": "C1001"}}</tool_call>',
        "<tool_call>" + "[" * 100_000,
        "<tool_call>__import__('os').system('true')</tool_call>",
    ):
        now = asked("Hm.")
        reply = now.say(words)
        assert reply.ask is not None and not reply.done, words[:80]
        assert now.conversation.record().facts["writes"] == 0, words[:80]
        assert any(word in now.shown for word in ("Error", "not found")), words[:80]


def test_a_user_that_never_stops_calling_is_told_so_and_then_a_fault_of_the_user() -> None:
    now = asked("Please check everything.")
    for _ in range(10):
        assert now.say(written(Call("check_status_bar", {}))).ask is not None
    assert "Status Bar" in now.shown.split("<tool_response>")[-1]
    for _ in range(3):
        assert now.say(written(Call("toggle_data", {}))).ask is not None
    assert "Tell the agent" in now.shown and now.conversation.record().facts["writes"] == 0
    with pytest.raises(UserFault, match="in a row"):
        now.say(written(Call("check_status_bar", {})))


def test_the_same_write_in_another_form_is_the_needed_one() -> None:
    task = one("telecom_solo/[mms_issue]bad_network_pref")
    calls = [call for item in task.gold() for call in item.calls]
    for mode in ("4g_5g_preferred", "3g_only"):
        chosen = [Call(call.name, {"mode": mode}) if "mode" in call.arguments else call for call in calls]
        assert played(task, *chosen).facts["clean"], mode
    for retail in DOMAINS["retail"].load_tasks():
        for _, call in (swapped := copy.deepcopy([*DOMAINS["retail"].needed(retail)])):
            for value in call.arguments.values():
                if isinstance(value, list):
                    value.reverse()
        assert needless(DOMAINS["retail"], retail, swapped) == (), retail.number


def test_the_user_never_sees_the_agents_functions_the_database_or_gold() -> None:
    for task in [task for task in [*TASKS.values()][::97] if task.mode == "user"]:
        now = Talk(task)
        now.say("Hello.")
        now.conversation.reply(PROTOCOL.render_calls("t", [Call("get_customer_by_id", {"customer_id": "C1001"})]))
        now.answer("Hm.")
        hidden = ("get_customer_by_id", "john.smith@example.com", "env_assertion", "transfer_to_human_agents")
        assert task.task.story.reason in now.shown and not any(word in now.shown for word in hidden)
