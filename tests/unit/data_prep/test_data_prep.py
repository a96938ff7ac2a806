"""The parquet files: reproducible, without leakage, and playable. Their card says what the manifest says."""

import json
import resource
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard

from bfcl_env import CATEGORIES, load_scenarios, part_of
from data_prep.__main__ import main
from data_prep.build import Options, build
from data_prep.card import data_card, write_card
from interaction import Conversation, get_protocol

COLUMNS = ["data_source", "prompt", "ability", "reward_model", "extra_info", "agent_name"]
SAME_CAR = (66, 70)
"""Two different tasks, one on each side of the split, that BFCL starts from the same parked car."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One of the full files, and one of the small ones."""
    full, small = (tmp_path_factory.mktemp(name) for name in ("full", "small"))
    build(full, Options())
    build(small, Options(tiny=True))
    return full, small


def rows(folder, name):
    return pq.read_table(folder / name).to_pylist()


def scenario_of(row):
    return next(item for item in load_scenarios() if item.id == row["extra_info"]["task_id"])


def test_the_full_files_have_the_rows_of_their_stage_in_verls_columns(folders):
    full, _ = folders
    counts = {"train_format_75": 75, "bfcl_train_base": 100, "bfcl_train": 400, "bfcl_val": 400, "sft_train": 400}
    assert {path.stem: pq.read_metadata(path).num_rows for path in full.glob("*.parquet")} == counts
    entries = json.loads((full / "manifest.json").read_text())["files"]
    assert {name.removesuffix(".parquet"): entry["rows"] for name, entry in entries.items()} == counts
    protocol = get_protocol("think_xml", docs="json")
    for name in ("bfcl_train.parquet", "bfcl_val.parquet"):
        assert pq.read_schema(full / name).names == COLUMNS
        for row in rows(full, name)[::37]:
            scenario = scenario_of(row)
            with Conversation(scenario, protocol=protocol) as conversation:
                assert row["prompt"] == conversation.start()
            assert row["data_source"] == f"bfcl/{scenario.category.removeprefix('multi_turn_')}"
            gold = json.loads(row["reward_model"]["ground_truth"])
            names = [[call["name"] for call in turn] for turn in gold]
            assert names == [[call.name for call in turn.gold] for turn in scenario.turns]
            assert row["agent_name"] == "conversation" and row["extra_info"]["index"] == scenario.index


def marks(row):
    """What a row has in common with no row on the other side."""
    scenario = scenario_of(row)
    yield from (scenario.index, row["reward_model"]["ground_truth"])
    if scenario.index not in SAME_CAR:
        yield json.dumps(scenario.initial_config, sort_keys=True)


def test_no_training_task_occurs_in_validation_which_has_both_parts_of_all_categories(folders):
    for folder in folders:
        names = [path.name for path in folder.glob("*.parquet") if "sft" not in path.name]
        val = [row for name in names if "val" in name for row in rows(folder, name)]
        train = [row for name in names if "val" not in name for row in rows(folder, name)]
        assert {row["extra_info"]["split"] for row in val} == {"val"}
        assert {row["extra_info"]["split"] for row in train} == {"train"}
        trained, held_out = ({mark for row in part for mark in marks(row)} for part in (train, val))
        assert trained.isdisjoint(held_out)
        found = {(row["extra_info"]["category"], part_of(row["extra_info"]["index"])) for row in val}
        assert found == {(category, part) for category in CATEGORIES for part in ("dev", "test")}


def test_sft_conversations_replay_to_full_progress(folders):
    scenarios = {item.id: item for item in load_scenarios()}
    for folder, name in zip(folders, ("sft_train.parquet", "tiny_sft.parquet"), strict=True):
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


def test_a_full_disk_loses_nothing_and_leaves_no_half_file(folders, tmp_path, capsys):
    out = shutil.copytree(folders[1], tmp_path / "out")
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
    arguments = ["--categories", "multi_turn_base", "--leave-out", f"{listed}=has to be exact"]
    assert main(["--out", str(tmp_path), *arguments]) == 0
    left = {path.stem: pq.read_table(path).num_rows for path in tmp_path.glob("*.parquet")}
    assert left["bfcl_val"] == 100 and left["bfcl_train"] == left["sft_train"] < 95
    assert "left out of training" in capsys.readouterr().out
    assert "--leave-out" in json.loads((tmp_path / "manifest.json").read_text())["command"]
    assert main(["--out", str(tmp_path / "none"), "--leave-out", str(tmp_path / "no.json")]) == 1
    assert "no.json is not what `bfcl_env validate --list` writes" in capsys.readouterr().err


def manifest(files, command="python -m data_prep --out DIR"):
    entries = {name: {"rows": 3, "sha256": "0"} for name in files}
    return {"command": command, "protocol": "hermes", "docs": "json", "files": entries}


def test_a_built_folder_has_a_card_of_its_files_and_a_readme_of_somebody_elses_is_kept(folders, tmp_path):
    folder = folders[1]
    made, card = json.loads((folder / "manifest.json").read_text()), DatasetCard.load(folder / "README.md")
    paths = {one["path"] for config in card.data.configs for one in config["data_files"]}
    assert paths == set(made["files"]) == {path.name for path in folder.glob("*.parquet")}
    assert all(entry["sha256"] in card.text for entry in made["files"].values()) and made["command"] in card.text
    assert "no clean score on BFCL's multi-turn categories" in card.text
    (tmp_path / "README.md").write_text("# Mine\n")
    write_card(tmp_path, made, dict.fromkeys(made["files"], "val"), ["bfcl"])
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_a_licence_is_stated_only_where_all_rows_have_it():
    licences = {("tau",): "mit", ("bfcl", "bfcl_single"): "apache-2.0", ("bfcl", "tau"): None, ("mine",): None}
    for known, licence in licences.items():
        card = DatasetCard(data_card(manifest(["a.parquet"]), {"a.parquet": "train"}, known))
        assert card.data.license == licence
        assert ("state their source and licence" in card.text) is ("mine" in known)


def test_names_of_a_users_are_no_markup_and_no_metadata():
    for name in ("a|b", "<script>", "x`y`", "---\nlicense: mit", "a\n## b"):
        given = manifest([name], f"python -m data_prep --environment {name}")
        card = DatasetCard(data_card(given, {name: "train"}, [name]))
        markup = "\n".join(line for line in card.text.splitlines() if not line.startswith("    "))  # else it is code
        assert card.data.license is None and "<script>" not in markup
        rows = [line for line in card.text.splitlines() if line.startswith("|")]
        assert len(rows) == 3 and "\n## b" not in card.text
