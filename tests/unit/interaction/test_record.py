"""Records of the version before are read as those of this one, and others refused."""

from typing import Any

import pytest

from bfcl_env import load_scenarios
from interaction import Conversation, EpisodeRecord, get_protocol
from interaction.call import Call
from interaction.record import VERSION, upgrade
from rewards.metrics import episode_metrics

PROTOCOL = get_protocol("think_xml", docs="signature")
OF_TURN = ("has_gold", "gold_calls", "closeness", "passed_official")


def played(number: int) -> dict[str, Any]:
    """A record with all there is: gold, a failing call with a hint, junk, a turn that was not reached."""
    scenario = load_scenarios()[number]
    with Conversation(scenario, PROTOCOL, environments={"bfcl": {"augment": True}}) as conversation:
        conversation.start()
        conversation.reply(PROTOCOL.render_calls("t", scenario.turns[0].gold or (Call("pwd", {}),)))
        conversation.reply(PROTOCOL.render_answer("t", "done"))
        for text in (PROTOCOL.render_calls("t", [Call("cd", {"folder": "nowhere"})]), "junk"):
            if not conversation.done:
                conversation.reply(text)
        if not conversation.done:
            conversation.stop("max_tokens")
        return conversation.record().to_dict()


def as_version_2(record: dict[str, Any]) -> dict[str, Any]:
    """As earlier releases wrote it: BFCL's facts beside the rest."""

    def flat(item: dict[str, Any], *names: str) -> dict[str, Any]:
        facts = item["facts"]
        return {key: value for key, value in item.items() if key != "facts"} | {n: facts.get(n) for n in names}

    old = {key: value for key, value in record.items() if key not in ("environment", "task_id", "options", "outcome")}
    old |= {"version": 2, "scenario_id": record["task_id"], "augment": record["options"]["augment"]}
    del old["facts"]
    old["turns"] = [
        flat(turn, *OF_TURN)
        | {
            "steps": [
                flat(step, "closeness") | {"calls": [flat(call, "gold") for call in step["calls"]]}
                for step in turn["steps"]
            ]
        }
        for turn in record["turns"]
    ]
    return old


@pytest.mark.parametrize("number", [0, 7, 250, 499, 650])
def test_a_record_of_version_2_is_read_as_one_of_this(number: int) -> None:
    record = played(number)
    old = as_version_2(record)
    before = repr(old)
    found = upgrade(old)
    assert repr(old) == before, "the caller's is not changed"
    assert found == record | {"options": {"augment": True}}
    assert EpisodeRecord.from_dict(old).to_dict() == found
    assert episode_metrics(found) == episode_metrics(record)


def test_a_record_of_this_version_stays_as_it_is() -> None:
    record = played(3)
    assert record["version"] == VERSION and EpisodeRecord.from_dict(record).to_dict() == record


@pytest.mark.parametrize("version", [None, 1, VERSION + 1, "3"])
def test_other_versions_are_refused_by_their_number(version: Any) -> None:
    with pytest.raises(ValueError, match=f"version {version!r}; this code reads {VERSION} and 2"):
        upgrade(played(0) | {"version": version})
