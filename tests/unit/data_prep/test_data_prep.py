"""The parquet files: reproducible, without leakage, and playable."""

import json
import resource
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bfcl_env import CATEGORIES, load_scenarios, part_of
from data_prep.__main__ import main
from data_prep.build import Options, build
from interaction import Conversation, get_protocol

COLUMNS = ["data_source", "prompt", "ability", "reward_model", "extra_info", "agent_name"]
SAME_CAR = (66, 70)
"""Two different tasks, one on each side of the split, that BFCL starts from the same parked car."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    out = tmp_path_factory.mktemp("full")
    build(out, Options())
    return out


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("small")
    build(out, Options(tiny=True))
    return out


def rows(folder, name):
    return pq.read_table(folder / name).to_pylist()


def scenario_of(row):
    return next(item for item in load_scenarios() if item.id == row["extra_info"]["task_id"])


def test_the_full_files_have_the_rows_of_their_stage_in_verls_columns(full):
    counts = {
        "train_format_75.parquet": 75,
        "bfcl_train_base.parquet": 100,
        "bfcl_train.parquet": 400,
        "bfcl_val.parquet": 400,
        "sft_train.parquet": 400,
    }
    entries = json.loads((full / "manifest.json").read_text())["files"]
    assert {name: entry["rows"] for name, entry in entries.items()} == counts
    assert {name: pq.read_metadata(full / name).num_rows for name in counts} == counts
    for name in ("bfcl_train.parquet", "bfcl_val.parquet"):
        assert pq.read_schema(full / name).names == COLUMNS
        for row in rows(full, name)[::37]:
            scenario = scenario_of(row)
            with Conversation(scenario, protocol=get_protocol("think_xml", docs="json")) as conversation:
                assert row["prompt"] == conversation.start()
            assert row["data_source"] == f"bfcl/{scenario.category.removeprefix('multi_turn_')}"
            gold = json.loads(row["reward_model"]["ground_truth"])
            assert [[call["name"] for call in turn] for turn in gold] == [
                [call.name for call in turn.gold] for turn in scenario.turns
            ]
            assert row["agent_name"] == "conversation" and row["extra_info"]["index"] == scenario.index


def test_no_training_task_occurs_in_validation_which_has_both_parts_of_all_categories(full, small):
    for folder in (full, small):
        names = [path.name for path in folder.glob("*.parquet") if "sft" not in path.name]
        val = [row for name in names if "val" in name for row in rows(folder, name)]
        train = [row for name in names if "val" not in name for row in rows(folder, name)]
        assert {row["extra_info"]["split"] for row in val} == {"val"}
        assert {row["extra_info"]["split"] for row in train} == {"train"}
        for key in ("task_id", "index"):
            assert {row["extra_info"][key] for row in train}.isdisjoint(row["extra_info"][key] for row in val)
        begun = [
            {
                json.dumps(one.initial_config, sort_keys=True)
                for one in map(scenario_of, part)
                if one.index not in SAME_CAR
            }
            for part in (train, val)
        ]
        assert begun[0].isdisjoint(begun[1])
        gold = [{row["reward_model"]["ground_truth"] for row in part} for part in (train, val)]
        assert gold[0].isdisjoint(gold[1])
        assert {(row["extra_info"]["category"], part_of(row["extra_info"]["index"])) for row in val} == {
            (category, part) for category in CATEGORIES for part in ("dev", "test")
        }


def test_sft_conversations_replay_to_full_progress(full, small):
    scenarios = {item.id: item for item in load_scenarios()}
    for folder, name in ((full, "sft_train.parquet"), (small, "tiny_sft.parquet")):
        manifest = json.loads((folder / "manifest.json").read_text())
        protocol = get_protocol(manifest["protocol"], docs=manifest["docs"])
        for row in rows(folder, name)[::4]:
            rules = {"protocol": protocol, "max_result_chars": manifest["max_result_chars"]}
            with Conversation(scenarios[row["task_id"]], **rules) as conversation:
                seen = list(conversation.start())
                for message in row["messages"]:
                    if message["role"] == "assistant":
                        seen += [message, *conversation.reply(message["content"]).messages]
                record = conversation.record()
            assert seen == row["messages"]
            assert all(turn.passed for turn in record.turns)


def snapshot(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_a_full_disk_loses_nothing_and_leaves_no_half_file(small, tmp_path, capsys):
    out = shutil.copytree(small, tmp_path / "out")
    (out / "tiny_val.parquet").write_bytes(b"old")
    before, limits = snapshot(out), resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, 9_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            status = main(["--out", str(out), "--tiny"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert status == 1
        assert "cannot write" in (said := capsys.readouterr().err) and said.count("\n") == 1 and "--out" in said
        assert snapshot(out) == before


def test_tasks_that_are_listed_with_a_reason_are_not_trained_on_and_validation_keeps_them(tmp_path, capsys):
    listed = Path(__file__).parents[3] / "docs" / "data" / "suspicious.json"
    files = {}
    for name, more in {"all": [], "fewer": ["--leave-out", f"{listed}=has to be exact"]}.items():
        assert main(["--out", str(tmp_path / name), "--categories", "multi_turn_base", *more]) == 0
        files[name] = {path.name: pq.read_table(path).num_rows for path in (tmp_path / name).glob("*.parquet")}
    fewer = {name: files["all"][name] - count for name, count in files["fewer"].items()}
    assert fewer["bfcl_val.parquet"] == 0 and fewer["bfcl_train.parquet"] == fewer["sft_train.parquet"] > 5
    assert "left out of training" in capsys.readouterr().out
    assert "--leave-out" in json.loads((tmp_path / "fewer" / "manifest.json").read_text())["command"]
    assert main(["--out", str(tmp_path / "none"), "--leave-out", str(tmp_path / "no.json")]) == 1
    assert "no.json is not what `bfcl_env validate --list` writes" in capsys.readouterr().err
