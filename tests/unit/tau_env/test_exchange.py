"""tau's tasks as conversations: alone with a ticket, with a user who is asked, and how each of them ends."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from interaction import Conversation, StopReason, get_protocol
from interaction.call import Call
from interaction.environment import AskUser, Task, load_tasks
from interaction.gold import play_gold
from interaction.record import EpisodeRecord
from interaction.users import UserFault
from rewards.outcome import compute_score
from tau_env.exchange import written

PROTOCOL = get_protocol("think_xml", docs="signature")
SHORT = {"environments": {"tau": {"policy": "none"}}, "max_steps_per_turn": 40}

TASKS = load_tasks("tau")


def one(start: str) -> Any:
    """The first task whose id begins so."""
    return next(task for name, task in TASKS.items() if name.startswith(start))


def sample(every: int) -> list[Any]:
    return list(TASKS.values())[::every]


def played(task: Task, *messages: Call | Sequence[Call] | str, **settings: Any) -> EpisodeRecord:
    """A solo episode of these calls and answers."""
    with Conversation(task, PROTOCOL, **{**SHORT, **settings}) as conversation:
        conversation.start()
        for message in messages:
            if isinstance(message, str):
                text = PROTOCOL.render_answer("t", message)
            else:
                text = PROTOCOL.render_calls("t", [message] if isinstance(message, Call) else message)
            conversation.reply(text)
        return conversation.record()


def data_off() -> Any:
    return one("telecom_solo/[mobile_data_issue]data_mode_off[")


@pytest.mark.parametrize("every", [23])
def test_gold_passes_officially_and_cleanly(every: int) -> None:
    for task in sample(every):
        _, record = play_gold(task, PROTOCOL, **SHORT)
        assert record.outcome is not None and record.outcome.passed, (task.id, record.outcome, record.fault)
        assert record.facts["passed_official"] and record.facts["clean"] and not record.facts["needless"]


def test_the_expert_looks_first_and_passes_as_well() -> None:
    for task in [task for task in sample(23) if task.mode == "solo"]:
        _, record = play_gold(replace(task, shown="expert"), PROTOCOL, **SHORT)
        assert record.outcome is not None and record.outcome.passed, task.id
        assert record.turns[0].steps[0].calls[0].name == "check_network_status"


def test_an_episode_alone_ends_with_done_or_a_transfer_and_words_to_nobody_do_not_pass() -> None:
    task, fix, done = data_off(), Call("toggle_data", {}), Call("done", {})
    assert played(task, fix, done).stop_reason == StopReason.done
    ends = {
        "fixed": ((fix, done), True, StopReason.done),
        "not fixed": ((done,), False, StopReason.done),
        "fixed and told nobody": ((fix, "It works."), False, StopReason.completed),
        "handed over": ((Call("transfer_to_human_agents", {"summary": "x"}),), False, StopReason.transfer),
        "fixed and handed over": ((fix, Call("transfer_to_human_agents", {"summary": "x"})), True, StopReason.transfer),
        "not ended": ((fix,), False, None),
    }
    for name, (messages, passes, reason) in ends.items():
        record = played(task, *messages)
        assert record.stop_reason == reason, name
        assert bool(record.outcome and record.outcome.passed) == passes, name


def test_nothing_runs_after_the_end_within_one_message() -> None:
    record = played(data_off(), [Call("done", {}), Call("toggle_data", {})])
    first, second = record.turns[0].steps[0].calls
    assert first.error is None and second.error == "limit" and not record.facts["writes"]


def test_what_was_not_needed_passes_officially_and_is_not_clean() -> None:
    task, done = data_off(), Call("done", {})
    twice = [Call("toggle_data_saver_mode", {})] * 2
    record = played(task, *twice, Call("toggle_data", {}), done)
    assert record.facts["passed_official"] and not record.facts["clean"] and record.facts["writes"] == 3
    assert len(record.facts["needless"]) == 2 and record.outcome is not None and not record.outcome.passed
    assert [call.facts.get("needless") for step in record.turns[0].steps for call in step.calls] == [
        True,
        True,
        None,
        None,
    ]
    paid = {
        rule: compute_score("tau", "", "[]", {"episode": record.to_dict()}, rule=rule, price=0.3)["score"]
        for rule in ("official", "clean", "priced")
    }
    assert paid == {"official": 1.0, "clean": 0.0, "priced": pytest.approx(0.4)}
    with pytest.raises(ValueError, match="expected one of official, clean, priced"):
        compute_score("tau", "", "[]", {"episode": record.to_dict()}, rule="kind")


def test_a_failed_episode_says_what_differs() -> None:
    record = played(data_off(), Call("done", {}))
    assert record.turns[0].difference and "assert" in record.turns[0].difference[0]["where"]


def test_limits_of_the_episode_end_it_without_passing() -> None:
    look = Call("check_network_status", {})
    record = played(data_off(), *[look] * 3, max_steps=3)
    assert record.stop_reason == StopReason.max_steps and record.outcome is not None and not record.outcome.passed


def test_of_several_calls_only_the_first_runs_where_that_is_the_rule() -> None:
    calls = [Call("toggle_data", {}), Call("toggle_roaming", {}), Call("done", {})]
    record = played(data_off(), calls, calls_per_message="first")
    step = record.turns[0].steps[0]
    assert [call.name for call in step.calls] == ["toggle_data"]
    assert not step.well_formed and step.format_error == "too_many_calls" and record.stop_reason is None
    assert played(data_off(), calls).stop_reason == StopReason.done


def test_the_prompt_has_what_the_settings_say() -> None:
    def opening(**options: Any) -> str:
        with Conversation(data_off(), PROTOCOL, environments={"tau": options}) as conversation:
            return conversation.start()[0]["content"]

    assert "<main_policy>" in opening() and "toggle_data(" in opening() and "done()" in opening()
    assert len(opening(policy="workflow")) < len(opening())
    assert "one tool call or write one reply" in opening(policy="none", one_thing_a_message=True)
    assert "toggle_data" not in opening(policy="none", show_functions=False)


# A user who is asked.


class Talk:
    """A conversation with a user; keeps what its model is shown."""

    def __init__(self, task: Task) -> None:
        self.conversation = Conversation(task, PROTOCOL, **SHORT)
        self.asked: list[AskUser] = []
        self._note(self.conversation.begin())

    def _note(self, reply: Any) -> Any:
        if reply.ask is not None:
            self.asked.append(reply.ask)
        return reply

    def say(self, words: str) -> Any:
        return self._note(self.conversation.hear(words))

    def answer(self, text: str) -> Any:
        return self._note(self.conversation.reply(PROTOCOL.render_answer("t", text)))

    def shown(self) -> str:
        return "\n".join(message["content"] for message in self.asked[-1].messages)


def talk() -> Talk:
    return Talk(one("telecom/[mobile_data_issue]data_mode_off["))


def test_the_user_speaks_first_and_the_agent_reads_no_more_than_the_words() -> None:
    now = talk()
    reply = now.say("My data does not work.")
    assert reply.messages[1]["content"] == "My data does not work."
    assert "toggle_data" not in reply.messages[0]["content"]  # the device is the user's
    assert now.answer("Is mobile data on?").ask is not None


@pytest.mark.parametrize("mark", ["###STOP###", "Bye. ###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"])
def test_a_user_ends_the_conversation_with_a_mark(mark: str) -> None:
    now = talk()
    now.say("My data does not work.")
    now.answer("Hm.")
    reply = now.say(mark)
    assert reply.done and reply.stop_reason == StopReason.user_stop


def test_the_user_makes_calls_on_its_device_which_the_agent_does_not_see() -> None:
    now = talk()
    now.say("My data does not work.")
    now.answer("Please turn mobile data on.")
    reply = now.say(f"I will. {written(Call('toggle_data', {}))}")
    assert reply.ask is not None and "Mobile Data is now ON" in now.shown()
    reply = now.say("It is on now.")
    assert [message["content"] for message in reply.messages] == ["It is on now."]
    now.answer("Then it works.")
    now.say("###STOP###")
    record = now.conversation.record()
    assert record.outcome is not None and record.outcome.passed and record.facts["writes"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "toggle_data", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "get_customer_by_id", "arguments": {"customer_id": "C1001"}}</tool_call>',
        "<tool_call>" + "[" * 100_000,
        '<tool_call>{"name": "done", "arguments": {}}</tool_call>',
        "<tool_call>__import__('os').system('true')</tool_call>",
    ],
    ids=["half", "list", "number", "arguments", "agent's", "deep", "done", "python"],
)
def test_what_is_no_call_of_the_device_is_answered_with_an_error(words: str) -> None:
    now = talk()
    now.say("My data does not work.")
    now.answer("Hm.")
    reply = now.say(words)
    assert reply.ask is not None and not reply.done and now.conversation.record().facts["writes"] == 0
    assert any(word in now.shown() for word in ("Error", "not found"))


@pytest.mark.parametrize("words", ["", "  \n"], ids=["nothing", "blanks"])
def test_a_user_that_says_nothing_is_a_fault_of_the_user(words: str) -> None:
    now = talk()
    with pytest.raises(UserFault, match="said nothing"):
        now.say(words)


def test_a_user_that_never_stops_calling_is_a_fault_of_the_user() -> None:
    now = talk()
    now.say("My data does not work.")
    now.answer("Hm.")
    for _ in range(10):
        assert now.say(written(Call("check_status_bar", {}))).ask is not None
    with pytest.raises(UserFault, match="10 calls"):
        now.say(written(Call("check_status_bar", {})))


def test_the_user_never_sees_the_agents_functions_the_database_or_gold() -> None:
    for task in [task for task in sample(97) if task.mode == "user"]:
        now = Talk(task)
        now.say("Hello.")
        now.conversation.reply(PROTOCOL.render_calls("t", [Call("get_customer_by_id", {"customer_id": "C1001"})]))
        now.answer("Hm.")
        shown = now.shown()
        assert "get_customer_by_id" not in shown and "john.smith@example.com" not in shown
        assert "env_assertion" not in shown and "transfer_to_human_agents" not in shown
        assert task.task.story.reason in shown
