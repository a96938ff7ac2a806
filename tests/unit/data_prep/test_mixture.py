"""Data of several environments, or of some categories: by weight, reproducible, and nothing held out is trained on."""

import json
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.__main__ import main
from data_prep.mixture import shares
from interaction.environment import load_tasks

MIXED = ("--mixture", "bfcl/base=1", "bfcl_single/live_simple=2", "bfcl_single/irrelevance=1")
SMALL = ("--docs", "signature", "--rows", "40", "--val-rows", "16")


def made(out, *arguments):
    """The rows of each file, and the manifest."""
    assert main(["--out", str(out), *arguments]) == 0
    rows = {path.stem: pq.read_table(path).to_pylist() for path in out.glob("*.parquet")}
    return rows, json.loads((out / "manifest.json").read_text())


def sources(rows):
    return Counter(row["data_source"] for row in rows)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return made(tmp_path_factory.mktemp("mixture"), *MIXED, *SMALL)


def test_weights_become_rows_of_all_names_in_one_file_each_of_its_part(mixture):
    rows, manifest = mixture
    shares = {"bfcl/base": 1, "bfcl_single/live_simple": 2, "bfcl_single/irrelevance": 1}
    assert sources(rows["mixture_train"]) == {name: 10 * share for name, share in shares.items()}
    assert sources(rows["mixture_val"]) == {name: 4 * share for name, share in shares.items()}
    assert manifest["mixture"]["bfcl_single/live_simple"] == {"weight": 2.0, "train": 20, "val": 8}
    assert manifest["made_from"].keys() == {"bfcl", "bfcl_single"} and manifest["mixture"]["seed"]
    for name, parts in (("mixture_train", {"train"}), ("mixture_val", {"dev", "test"})):
        for environment in ("bfcl", "bfcl_single"):
            own = [row["extra_info"] for row in rows[name] if row["extra_info"]["environment"] == environment]
            tasks = load_tasks(environment)
            assert {tasks[item["task_id"]].part for item in own} == {item["part"] for item in own} == parts
    keys = [row["extra_info"]["task_id"] for part in ("mixture_train", "mixture_val") for row in rows[part]]
    assert len({*keys}) == len(keys), "each task once"


def test_another_process_makes_the_same_bytes_from_the_command_in_the_manifest(mixture, tmp_path):
    _, manifest = mixture
    command = manifest["command"].replace("DIR", str(tmp_path / "again")).split()
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    assert json.loads((tmp_path / "again" / "manifest.json").read_text()) == manifest


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5000), st.dictionaries(st.text(max_size=3), st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_shares_add_up_and_each_is_less_than_one_off(total, weights):
    found = shares(total, weights)
    assert sum(found.values()) == total
    for name, weight in weights.items():
        assert abs(found[name] - total * weight / sum(weights.values())) < 1 + 1e-6


def test_a_mixture_that_cannot_be_made_is_one_line(tmp_path, capsys):
    for arguments in (
        ("bfcl/simple=1",),
        ("nowhere=1",),
        ("bfcl=nan",),
        ("bfcl=1", "bfcl/base=1"),
        ("bfcl=1", "bfcl_single=9", "--rows", "3000"),
        ("bfcl=1", "--tiny"),
        ("bfcl=1", "--option", "augment=true"),
        ("bfcl=1", "--option", "bfcl.augmnt=true"),
    ):
        assert main(["--out", str(tmp_path / "out"), "--mixture", *arguments]) == 1, arguments
        said = capsys.readouterr().err
        assert said.startswith("data_prep: ") and said.count("\n") == 1 and not (tmp_path / "out").exists(), said
    for arguments in (("--mixture", "bfcl"), ("--rows", "5"), ("--val-rows", "0"), ("--skip-bad",)):
        with pytest.raises(SystemExit):
            main(["--out", str(tmp_path), *arguments])
    assert main(["--out", str(tmp_path), "--environment", "bfcl_single", "--categories", "java"]) == 1
    assert "'java' is no category of environment bfcl_single; known: simple_python" in capsys.readouterr().err


def test_only_the_categories_that_are_named_are_in_the_files(tmp_path):
    for arguments, counts in (
        (
            ("--environment", "bfcl_single", "--categories", "simple_java,live_relevance"),
            {"bfcl_single_train": 58, "bfcl_single_val": 58, "bfcl_single_sft": 50},
        ),
        (("--categories", "multi_turn_miss_param"), {"bfcl_train": 100, "bfcl_val": 100, "sft_train": 100}),
    ):
        rows, manifest = made(tmp_path / arguments[-1], "--docs", "signature", *arguments)
        assert {name: len(those) for name, those in rows.items()} == counts
        assert "--categories " in manifest["command"]


def test_what_the_protocol_cannot_write_is_left_out_and_said(tmp_path, capsys):
    arguments = ("--environment", "bfcl_single", "--categories", "simple_java", "--protocol", "python_calls")
    rows, manifest = made(tmp_path, "--docs", "signature", *arguments)
    left_out = {"bfcl_single/simple_java_62", "bfcl_single/simple_java_63"}
    assert manifest["left_out"].keys() == left_out
    said = capsys.readouterr().out
    assert all(name in said for name in left_out) and "'from'" in said
    there = {row["extra_info"]["task_id"] for name in ("train", "val") for row in rows[f"bfcl_single_{name}"]}
    assert len(there) == 98 and not {f"bfcl_single/{name}" for name in there} & left_out
