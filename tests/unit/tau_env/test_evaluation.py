"""tau through an evaluation: an agent and a user behind servers, the latter with faults."""

import json
from pathlib import Path

from support.evaluation import PROTOCOL, completion, played, serving

from interaction.call import Call
from tau_env import source
from tau_env.exchange import STOP, written

ASK = "Please turn mobile data on."
FAULTS = [429, b"{not json", completion(""), completion("\x00\x1b")]


def agent(messages: list[dict[str, str]]) -> str:
    """Says what to do, and believes what it is told."""
    told = sum(message["role"] == "user" for message in messages)
    return PROTOCOL.render_answer("t", ASK if told == 1 else "Then it works.")


def user(messages: list[dict[str, str]]) -> str:
    """Does on its device what it is asked to."""
    last = messages[-1]["content"]
    if last == ASK:
        return f"I do that. {written(Call('toggle_data', {}))}"
    if last.startswith("<tool_response>"):
        return ""
    return STOP if last.startswith("Then") else "My phone has no data."


def test_agent_and_user_talk_by_taus_rules_and_faults_of_the_users_server_cost_nothing(tmp_path: Path) -> None:
    given = "--environment tau --domain telecom --mode user --split all --user kind=endpoint --user backoff=0.001 "
    given += "--user attempts=20 --option policy=none --option split=size --option one_thing_a_message=true"
    with serving(user, ["none", *FAULTS]) as person:
        done = played(agent, tmp_path, *given.split(), "--user", f"url={person.url}", category=None, limit=8)
    assert done.status == 0 and done.found["lost"] == [] and len(done.lines) == 24
    by_task = {line["task_id"]: line["episode"] for line in done.lines}
    assert all(episode["stop_reason"] == "user_stop" for episode in by_task.values())
    solved = by_task["telecom/[mobile_data_issue]data_mode_off[PERSONA:None]"]
    assert solved["outcome"]["passed"] and solved["facts"]["passed_official"]
    assert [turn["user"] for turn in solved["turns"]] == ["My phone has no data.", "I do that."]
    settings = json.loads((tmp_path / "settings.json").read_text())
    rules = {"max_steps": 30, "max_steps_per_turn": 30, "max_result_chars": 20_000, "calls_per_message": "first"}
    assert rules.items() <= settings["policy"].items() and settings == done.found["settings"]
    assert settings["source"]["tau2_data"]["tau2_bench"] == source.RELEASE
    assert (settings["user"]["model"], settings["user"]["temperature"]) == ("m", 0.7), "neither was given"
    assert done.found["parts"] == {}, "by size they all train, by the split without a word they do not"


def test_the_published_set_ends_after_200_messages_of_everybody_and_samples_of_a_sampling_user_differ(
    tmp_path: Path,
) -> None:
    given = "--environment tau --split official --samples 2 --user kind=endpoint --user model=m --user temperature=0.5"
    with serving(user) as person:
        talk = (*given.split(), "--user", f"url={person.url}")
        done = played(lambda _: PROTOCOL.render_answer("t", ASK), tmp_path, *talk, category="telecom_service", limit=1)
    assert done.status == 0 and len(done.lines) == 2
    for episode in (line["episode"] for line in done.lines):
        said = sum(len(turn["steps"]) for turn in episode["turns"])
        assert said + 2 * len(episode["heard"]) - len(episode["turns"]) == 200, "a device call has a result"
        assert (said, episode["stop_reason"], episode["outcome"]["passed"]) == (50, "max_steps", False)
