"""Where tau's data come from, and which tasks train, decide and are reported. An evaluation: an agent and a user
behind servers, the latter with faults.
"""

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from support.entries import write
from support.evaluation import PROTOCOL, completion, played, serving

from data_prep.__main__ import main as prepare_data
from interaction.call import Call
from interaction.environment import part_of, task_of
from tau_env import source
from tau_env.exchange import STOP, written
from tau_env.retail import reads, writes
from tau_env.shop import Shop
from tau_env.tasks import DOMAINS, SMALL, load_tasks

PREPARE = ["--environment", "tau", "--tiny", "--docs", "signature", "--option", "policy=none"]


def test_rows_say_for_themselves_on_which_side_they_stand(tmp_path):
    assert prepare_data([*PREPARE, "--out", str(tmp_path), "--option", "split=size"]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["options"]["split"] == "size" and manifest["tau2_data"]["from"].startswith("inspect-evals")
    for name, column in (("val", "prompt"), ("sft", "messages")):
        assert "<main_policy>" not in str(parquet.read_table(tmp_path / f"tau_{name}.parquet")[column].to_pylist())
    for row in parquet.read_table(tmp_path / "tau_user.parquet").to_pylist():
        told, turns = [[]], json.loads(row["reward_model"]["ground_truth"])
        for action in task_of(row["extra_info"]).task.gold:
            if action.side == "agent":
                told[-1].append({"name": action.call.name, "arguments": action.call.arguments})
            else:
                told.append([])
        assert turns == told[: len(turns)] and not any(told[len(turns) :]), "what the user does ends a turn"
    infos = parquet.read_table(tmp_path / "tau_val.parquet")["extra_info"].to_pylist()
    assert {part_of(info) for info in infos} == {"dev", "test"}
    assert all(info["task_id"].count("|") >= SMALL for info in infos)
    own = {info["task_id"]: part_of({**info, "part": None}) for info in infos}
    assert "train" in own.values()  # by the split that the environment has without a word
    mixed = "--mixture tau=1 --rows 60 --val-rows 8 --docs signature --option tau.policy=none --option tau.split=size"
    assert prepare_data([*mixed.split(), "--out", str(tmp_path)]) == 0
    infos = parquet.read_table(tmp_path / "mixture_train.parquet")["extra_info"].to_pylist()
    assert all(info["task_id"].count("|") < SMALL for info in infos if info["task_id"].startswith("telecom"))


def test_a_checkout_takes_the_place_of_the_release_and_one_that_is_none_is_one_line(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "data" / "tau2"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tau2"\nversion = "1.0.1"\n')
    for name in source.SHA256:
        write(folder, source.read(name), name.removesuffix(".gz"))
    monkeypatch.setenv(source.FOLDER, str(folder))
    arguments = [*PREPARE, "--out", str(tmp_path / "o")]
    try:
        source.folder.cache_clear()
        load_tasks.cache_clear()
        assert prepare_data(arguments) == 0
        found = json.loads((tmp_path / "o" / "manifest.json").read_text())["tau2_data"]
        assert found["from"] == str(folder) and len(found["sha256"]) == 64 and found["tau2_bench"] == "1.0.1"
        (folder / "domains" / "retail" / "split_tasks.json").unlink()
        capsys.readouterr()
        assert prepare_data([*arguments, "--option", "split=official"]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and str(folder) in said
        monkeypatch.setitem(DOMAINS, "retail", Shop("tau_env.retail", reads, writes))  # which reads anew
        for file, content in (("split", "["), ("split", "{}"), ("split", "[]"), ("", '["x"]')):
            write(folder, content, f"domains/retail/{file}{'_' * bool(file)}tasks.json")
            with pytest.raises(source.SourceError, match="the files of retail in"):
                load_tasks("official")
        for content in ("[project", "", "project = 1"):
            write(tmp_path, content, "pyproject.toml")
            assert source.made_from()["tau2_bench"] == "unknown"
        (tmp_path / "pyproject.toml").unlink()
        assert source.made_from()["tau2_bench"] == "unknown"
        refusals = ((str(tmp_path), "", "has no folder domains"), ("", "x", "is not the file of inspect"))
        for given, changed, words in refusals:
            monkeypatch.setenv(source.FOLDER, given)
            monkeypatch.setitem(source.SHA256, "domains/retail/policy.txt", changed)
            source.folder.cache_clear()
            with pytest.raises(source.SourceError, match=words):
                source.read("domains/retail/policy.txt")
        source.folder.cache_clear()
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(source.SourceError, match="is not installed"):
            source.folder()
    finally:
        source.folder.cache_clear()
        load_tasks.cache_clear()


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


def test_the_published_set_ends_after_200_messages_of_everybody_and_samples_of_a_sampling_user_differ(tmp_path):
    given = "--environment tau --split official --samples 2 --user kind=endpoint --user model=m --user temperature=0.5"
    with serving(user) as person:
        talk = (*given.split(), "--user", f"url={person.url}")
        done = played(lambda _: PROTOCOL.render_answer("t", ASK), tmp_path, *talk, category="telecom_service", limit=1)
    assert done.status == 0 and len(done.lines) == 2
    for episode in (line["episode"] for line in done.lines):
        said = sum(len(turn["steps"]) for turn in episode["turns"])
        assert said + 2 * len(episode["heard"]) - len(episode["turns"]) == 200, "a device call has a result"
        assert (said, episode["stop_reason"], episode["outcome"]["passed"]) == (50, "max_steps", False)
