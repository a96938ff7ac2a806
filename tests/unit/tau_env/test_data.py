"""Where tau's data come from, and which tasks train, decide and are reported."""

import json

import pyarrow.parquet as parquet
import pytest
from support.entries import write

from data_prep.__main__ import main as prepare_data
from interaction.environment import part_of
from tau_env import source, telecom
from tau_env.tasks import DOMAINS, SMALL, load_tasks

PREPARE = ["--environment", "tau", "--tiny", "--docs", "signature", "--option", "policy=none"]


def test_each_split_puts_the_tasks_that_it_says_on_each_side_and_no_cluster_or_fault_set_on_two():
    for by in ("faults", "size", "official"):
        parts = {}
        for task in load_tasks(by):
            if by != "official" or task.task.domain == "telecom":  # tau2-bench's own puts some customers on both
                parts.setdefault(task.cluster, set()).add(task.part)
            if task.task.domain == "telecom":
                parts.setdefault(tuple(sorted(telecom.faults(task.task))), set()).add(task.part)
        assert parts and all(len(found) == 1 for found in parts.values())
    for name in DOMAINS:
        named = json.loads(source.read(f"domains/{name}/split_tasks.json"))
        official = [task for task in load_tasks("official") if task.task.domain == name and task.mode == "user"]
        assert {task.task.number for task in official if task.part == "train"} == set(named["train"])
        assert {task.task.number for task in official if task.part != "train"} == set(named["test"])


def test_rows_say_for_themselves_on_which_side_they_stand(tmp_path):
    assert prepare_data([*PREPARE, "--out", str(tmp_path), "--option", "split=size"]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["options"]["split"] == "size" and manifest["tau2_data"]["from"].startswith("inspect-evals")
    for name, column in (("val", "prompt"), ("sft", "messages")):
        assert "<main_policy>" not in str(parquet.read_table(tmp_path / f"tau_{name}.parquet")[column].to_pylist())
    infos = parquet.read_table(tmp_path / "tau_val.parquet")["extra_info"].to_pylist()
    assert {part_of(info) for info in infos} == {"dev", "test"}
    assert all(info["task_id"].count("|") >= SMALL for info in infos)
    own = {info["task_id"]: part_of({**info, "part": None}) for info in infos}
    assert "train" in own.values()  # by the split that the environment has without a word


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
        write(folder, source.read("domains/retail/tasks.json"), "domains/retail/split_tasks.json")
        write(tmp_path, "[project", "pyproject.toml")
        assert source.made_from()["tau2_bench"] == "unknown"
        for given, changed, words in (
            (str(tmp_path), "", "has no folder domains"),
            ("", "x", "is not the file of inspect"),
        ):
            monkeypatch.setenv(source.FOLDER, given)
            monkeypatch.setitem(source.SHA256, "domains/retail/policy.txt", changed)
            source.folder.cache_clear()
            with pytest.raises(source.SourceError, match=words):
                source.read("domains/retail/policy.txt")
    finally:
        source.folder.cache_clear()
        load_tasks.cache_clear()
