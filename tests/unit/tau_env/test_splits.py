"""Which tasks train, decide and are reported, by each of the splits."""

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from data_prep.__main__ import main as prepare_data
from interaction.environment import part_of
from tau_env import source, telecom
from tau_env.splits import SHARES, SMALL, size
from tau_env.tasks import DOMAINS, TauTask, load_tasks

SPLITS = ("faults", "size", "official")


def faults(task: TauTask) -> int:
    return size(DOMAINS[task.task.domain], task.task)


@pytest.mark.parametrize("by", SPLITS)
def test_no_cluster_stands_on_two_sides_in_whichever_mode(by: str) -> None:
    parts: dict[str, set[str]] = {}
    for task in load_tasks(by):  # type: ignore[arg-type]
        parts.setdefault(task.cluster, set()).add(task.part)
    if by == "official":  # tau2-bench's own puts some customers on both
        parts = {name: found for name, found in parts.items() if name.startswith("telecom/")}
    assert parts and all(len(found) == 1 for found in parts.values())


@pytest.mark.parametrize("by", SPLITS)
def test_a_fault_set_stands_on_one_side_in_whichever_family(by: str) -> None:
    sides: dict[tuple[str, ...], set[str]] = {}
    for task in load_tasks(by):  # type: ignore[arg-type]
        if task.task.domain == "telecom":
            sides.setdefault(tuple(sorted(telecom.faults(task.task))), set()).add(task.part)
    assert all(len(found) == 1 for found in sides.values())


def test_by_faults_all_sizes_are_on_each_side_in_the_same_shares() -> None:
    tasks = load_tasks()
    sizes = {part: {faults(task) for task in tasks if task.part == part} for part in SHARES}
    assert sizes["train"] == sizes["report"] and len(sizes["train"]) >= 9
    for category in {task.category for task in tasks}:
        found = [task.part for task in tasks if task.category == category]
        for part, share in SHARES.items():
            assert abs(found.count(part) / len(found) - share) < 0.05, (category, part)


def test_by_size_the_larger_tasks_are_held_out() -> None:
    telecom = [task for task in load_tasks("size") if task.task.domain == "telecom"]
    assert {task.part for task in telecom if faults(task) <= SMALL} == {"train"}
    assert {task.part for task in telecom if faults(task) > SMALL} == {"choose", "report"}


def test_the_official_split_has_the_tasks_of_its_files() -> None:
    for name in DOMAINS:
        named = json.loads(source.read(f"domains/{name}/split_tasks.json"))
        tasks = [task for task in load_tasks("official") if task.task.domain == name and task.mode == "user"]
        assert {task.task.number for task in tasks if task.part == "train"} == set(named["train"])
        assert {task.task.number for task in tasks if task.part != "train"} == set(named["test"])


def test_rows_say_for_themselves_on_which_side_they_stand(tmp_path: Path) -> None:
    asked = ["--environment", "tau", "--tiny", "--out", str(tmp_path), "--docs", "signature"]
    assert prepare_data([*asked, "--option", "policy=none", "--option", "split=size"]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["options"]["split"] == "size" and manifest["tau2_data"]["from"].startswith("inspect-evals")
    infos = parquet.read_table(tmp_path / "tau_val.parquet")["extra_info"].to_pylist()
    assert {part_of(info) for info in infos} == {"choose", "report"}
    assert all(info["task_id"].count("|") >= SMALL for info in infos)
    own = {info["task_id"]: part_of({**info, "part": None}) for info in infos}
    assert "train" in own.values()  # by the split that the environment has without a word
