"""The parquet files: reproducible, without leakage, and playable. Their card says what the manifest says."""

import hashlib
import io
import json
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard

from bfcl_env import Call, load_scenarios
from bfcl_env.scenarios import Turn
from data_prep.__main__ import main
from data_prep.build import Options, build
from data_prep.card import data_card, write_card
from data_prep.sft import gold_messages
from interaction import Conversation, get_protocol


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One of the full files, and one of the small ones."""
    full, small = (tmp_path_factory.mktemp(name) for name in ("full", "small"))
    build(full, Options())
    build(small, Options(tiny=True))
    return full, small


def rows(folder, name):
    return pq.read_table(folder / name).to_pylist()


DRAWN = ("54e9b817e77b29db", "912fc970b1db01f3")
"""Hashes of all columns of the full and the small files but the messages."""


def test_the_files_have_the_rows_that_were_recorded_and_messages_as_a_conversation_does(folders):
    scenarios = {item.id: item for item in load_scenarios()}
    for folder, drawn, chars in zip(folders, DRAWN, (None, 300), strict=True):
        made, found = json.loads((folder / "manifest.json").read_text()), {}
        protocol = get_protocol(made["protocol"], docs=made["docs"])
        for name in sorted(made["files"]):
            found[name] = rows(folder, name)
            for number, row in enumerate(found[name]):
                messages = row.pop("prompt", None) or row.pop("messages")
                if number % 19 == 0:
                    scenario = scenarios[row.get("task_id") or row["extra_info"]["task_id"]]
                    with Conversation(scenario, protocol=protocol, max_result_chars=chars) as conversation:
                        seen = [*conversation.start()]
                        for message in messages:
                            if message["role"] == "assistant":
                                seen += [message, *conversation.reply(message["content"]).messages]
                    assert seen == messages
        assert {path.name for path in folder.glob("*.parquet")} == {*found} and made["max_result_chars"] == chars
        assert [entry["rows"] for _, entry in sorted(made["files"].items())] == [*map(len, found.values())]
        assert hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16] == drawn
    early = replace(scenario, turns=(Turn("Look.", (Call("pwd", {}),), ()), Turn("", (), ("pwd",))))
    with pytest.raises(RuntimeError, match=r"does not pass in turns \[0\]"):
        gold_messages(early, protocol)
    whole = (folder / name).read_bytes()
    with pytest.raises(OSError, match="checksum"):
        pq.read_table(io.BytesIO(whole[:999] + bytes([whole[999] ^ 1]) + whole[1000:]), page_checksum_verification=True)


COMMANDS = {
    "think_xml --docs json": {},
    "think_xml --docs signature --max-result-chars 300 --tiny": {"tiny": True, "max_result_chars": 300},
    "python_calls --docs signature --laptop --seed 2": {"protocol": "python_calls", "laptop": True, "seed": 2},
    "think_xml --docs json --environment 'a b' --categories a,b": {"environment": "a b", "categories": ("a", "b")},
    "think_xml --docs signature --mixture a=2 b=0.5": {"docs": "signature", "mixture": {"a": 2.0, "b": 0.5}},
    "think_xml --docs json --option k=null --unplayed": {"options": {"k": None}, "unplayed": True},
}


def test_the_manifest_has_the_command_that_makes_the_files_again():
    for words, given in COMMANDS.items():
        command = Options(**given).command(given.get("max_result_chars"))
        assert command == f"python -m data_prep --out DIR --protocol {words}"


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
    assert main(["--out", str(tmp_path), "--max-result-chars", "9", *arguments]) == 0
    left = {path.stem: pq.read_table(path).num_rows for path in tmp_path.glob("*.parquet")}
    lines = {"bfcl_val": 100, "train_format_75": 68, "bfcl_train": 92, "bfcl_train_base": 92, "sft_train": 92}
    assert "more characters]" in str(rows(tmp_path, "sft_train.parquet"))
    assert left == lines and "left out of training: 31 rows" in capsys.readouterr().out
    assert f"--leave-out '{listed}=has to be exact'" in json.loads((tmp_path / "manifest.json").read_text())["command"]
    (tmp_path / "a.json").write_text('{"multi_turn_base_0": [{"reason": "odd"}, {"reason": "wrong"}]}')
    cases = {"a.json=right": "names no task with the reason 'right'", "no.json": "no.json is not what"}
    for number, text in enumerate(("{", "[]", '{"a": [{}]}', '{"a": 5}')):
        (tmp_path / f"{number}.json").write_text(text)
        cases[f"{number}.json"] = f"{number}.json is not what"
    for file, said in cases.items():
        assert main(["--out", str(tmp_path / "none"), "--leave-out", f"{tmp_path}/{file}"]) == 1
        assert said in capsys.readouterr().err


def test_a_built_folder_has_a_card_of_its_files_and_a_readme_of_somebody_elses_is_kept(folders, tmp_path):
    folder = folders[1]
    made, card = json.loads((folder / "manifest.json").read_text()), DatasetCard.load(folder / "README.md")
    splits = [(one["path"], one["split"]) for config in card.data.configs for one in config["data_files"]]
    assert {path for path, _ in splits} == set(made["files"])
    assert {path for path, split in splits if split == "validation"} == {"tiny_val.parquet"}
    assert all(entry["sha256"] in card.text for entry in made["files"].values()) and made["command"] in card.text
    assert "no clean score on BFCL's multi-turn categories" in card.text
    (tmp_path / "README.md").write_text("# Mine\n")
    write_card(tmp_path, made, dict.fromkeys(made["files"], "val"), ["bfcl"])
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_a_licence_is_stated_only_where_all_rows_have_it():
    files = {"a.parquet": {"rows": 3, "sha256": "0"}}
    manifest = {"command": "python -m data_prep", "protocol": "hermes", "docs": "json", "files": files}
    licences = {("tau",): "mit", ("bfcl", "bfcl_single"): "apache-2.0", ("bfcl", "tau"): None, ("mine",): None}
    for known, licence in licences.items():
        card = DatasetCard(data_card(manifest, {"a.parquet": "train"}, known))
        assert card.data.license == licence
        assert ("state their source and licence" in card.text) is ("mine" in known)
        assert card.data.language == (None if "mine" in known else ["en"])
    sizes = {999: "n<1K", 1000: "1K<n<10K", 9999: "1K<n<10K", 10_000: "10K<n<100K"}
    for rows, size in sizes.items():
        files = {"a": {"rows": 5, "sha256": "0"}, "b": {"rows": rows - 5, "sha256": "1"}}
        card = DatasetCard(data_card(manifest | {"files": files}, {"a": "train", "b": "val"}, ["tau"]))
        assert card.data.size_categories == [size]
