"""tau through an evaluation: an agent and a user behind servers, the latter with faults."""

import json
from pathlib import Path

from support.evaluation import completion, serving

from interaction import get_protocol
from interaction.call import Call
from recipe import evaluate
from tau_env.exchange import STOP, written

PROTOCOL = get_protocol("think_xml", docs="signature")
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
        return written(Call("toggle_data", {}))
    if last.startswith("<tool_response>"):
        return "It is on now."
    return STOP if last.startswith("Then") else "My phone has no data."


def test_agent_and_user_talk_by_taus_rules_and_faults_of_the_users_server_cost_nothing(tmp_path: Path) -> None:
    with serving(agent) as model, serving(user, ["none", *FAULTS]) as person:
        arguments = ["--endpoint", model.url, "--out", str(tmp_path), "--environment", "tau", "--docs", "signature"]
        arguments += ["--domain", "telecom", "--mode", "user", "--split", "all", "--limit", "8", "--backoff", "0.01"]
        arguments += ["--option", "policy=none", "--option", "split=size", "--option", "one_thing_a_message=true"]
        arguments += ["--user", "kind=endpoint", "--user", f"url={person.url}", "--user", "backoff=0.001"]
        assert evaluate.main([*arguments, "--user", "attempts=20"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "results.json").read_text())["lost"] == [] and len(lines) == 24
    by_task = {line["task_id"]: line["episode"] for line in lines}
    assert all(episode["stop_reason"] == "user_stop" for episode in by_task.values())
    solved = by_task["telecom/[mobile_data_issue]data_mode_off[PERSONA:None]"]
    assert solved["outcome"]["passed"] and solved["facts"]["passed_official"]
    assert [turn["user"] for turn in solved["turns"]] == ["My phone has no data.", "It is on now."]
    settings = json.loads((tmp_path / "settings.json").read_text())
    rules = {"max_steps": 30, "max_steps_per_turn": 30, "max_result_chars": 20_000, "calls_per_message": "first"}
    assert settings["policy"] == rules
