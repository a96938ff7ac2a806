"""What is wrong with a Ray cluster is told before anything of a run is touched: all of it, with what to change."""

import copy
import os
import random
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe import cluster, loopback
from recipe.cluster import Answer, Node
from recipe.errors import PreflightError
from recipe.preflight.cluster import CHECKS, Needs, check_cluster, mistakes, read_paths

NEEDS = Needs(nodes=2, gpus=8, memory=64e9, root="/code", folder="/home/me", shared="/runs/first/.nodes-1")
HERE: dict[str, Any] = {
    "python": "3.11.7",
    "executable": "/code/.venv/bin/python",
    "folder": True,
    "code": "aa",
    "packages": {"verl": "0.9.1", "ray": "2.60.0"},
    "secrets": {"WANDB_API_KEY": "cc"},
    "variables": {},
    "paths": {"/data/train.parquet": 700},
    "memory": 500 * 10**9,
}
RESOURCES = {"CPU": 96.0, "GPU": 8.0}


def node(name: str, **other: Any) -> Node:
    said = {**copy.deepcopy(HERE), "wrote": None, "seen": ["first", "second"]}
    return Node(**{"id": name, "name": name, "address": "10.0.0.1", "resources": RESOURCES, "answer": said, **other})


def told(second: Node, needs: Needs = NEEDS) -> list[str]:
    return mistakes(Answer((node("first"), second), "first"), HERE, needs)


def with_fact(**facts: Any) -> Callable[[Node], None]:
    return lambda node: node.answer.update(facts)


def with_resource(**resources: float) -> Callable[[Node], None]:
    return lambda node: node.resources.update(resources)


def unseen(node: Node) -> None:
    node.answer["seen"].remove("first")


WRONG: dict[str, tuple[Callable[[Node], None], list[str]]] = {
    "no such folder": (with_fact(folder=False), ["has no folder /home/me", "mount at the same place"]),
    "no checkout": (with_fact(code=None), ["has no folder /code", "mount at the same place"]),
    "other code": (with_fact(code="ab"), ["has other code", "in /code", "bring the others up to date"]),
    "another version of a package": (
        with_fact(packages={"verl": "0.9.1", "ray": "2.59.0"}),
        ["has other packages in /code/.venv/bin/python: ray 2.59.0 (here 2.60.0)", "bash setup.sh"],
    ),
    "a package is missing": (with_fact(packages={"verl": "0.9.1"}), ["ray is missing (here 2.60.0)", "bash setup.sh"]),
    "another Python": (with_fact(python="3.12.1"), ["python 3.12.1 (here 3.11.7)", "bash setup.sh"]),
    "data are missing": (
        with_fact(paths={"/data/train.parquet": None}),
        ["/data/train.parquet (missing, here 700 bytes)"],
    ),
    "other data": (with_fact(paths={"/data/train.parquet": 1}), ["/data/train.parquet (1 bytes, here 700 bytes)"]),
    "a key is missing": (with_fact(secrets={}), ["WANDB_API_KEY is not set", "before `ray start` there"]),
    "another key": (with_fact(secrets={"WANDB_API_KEY": "dd"}), ["WANDB_API_KEY differs"]),
    "processes that stay on the node": (
        with_fact(variables={"GLOO_SOCKET_IFNAME": "lo"}),
        ["has GLOO_SOCKET_IFNAME=lo", "Unset that", "before `ray start` there"],
    ),
    "no memory": (with_fact(memory=3 * 10**9), ["has 3.0 GB of memory,", "needs 64", "launcher.needs.memory_gb"]),
    "few CPUs": (with_resource(CPU=16), ["has 16 CPUs for Ray", "asks for 26", "--num-cpus=26"]),
    "few GPUs": (with_resource(GPU=4), ["it has 1: ", "second (10.0.0.1) has 4", "trainer.n_gpus_per_node"]),
    "a folder that is not shared": (
        unseen,
        ["does not see what first (10.0.0.1) writes into /runs/first", "paths.run"],
    ),
    "a folder that cannot be written": (
        with_fact(wrote="Permission denied: /runs/first/.nodes-1"),
        ["cannot write into /runs/first: Permission denied", "paths.run"],
    ),
}
"""What can be wrong with a node, and what is to be said of it."""


def test_nothing_is_said_of_nodes_that_have_all() -> None:
    assert told(node("second")) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_a_node_lacks_is_said_with_the_node_and_what_to_change(name: str) -> None:
    harm, texts = WRONG[name]
    harm(second := node("second", resources=dict(RESOURCES)))
    said = told(second)
    assert len(said) == 1 and "second (10.0.0.1)" in said[0], said
    for text in texts:
        assert text in said[0]


def test_a_node_that_does_not_answer_is_named_with_its_fault() -> None:
    (said,) = told(node("second", answer=None, fault="no answer within 60 s"))
    assert said == "second (10.0.0.1) cannot be asked: no answer within 60 s."


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_wrong_is_said_at_once(seed: int) -> None:
    chosen = random.Random(seed).sample(sorted(WRONG), 4)
    alone = set()
    second = node("second", resources=dict(RESOURCES))
    for name in chosen:
        WRONG[name][0](second)
    for name in chosen:
        harm, _ = WRONG[name]
        harm(lone := node("second", resources=dict(RESOURCES)))
        alone |= {check.__name__ for check in CHECKS if check(lone, HERE, NEEDS)}
    found = {check.__name__ for check in CHECKS if check(second, HERE, NEEDS)}
    assert found >= alone - {"_cpus"}  # with fewer GPUs fewer CPUs are asked for
    assert len(told(second)) >= len(found)


def test_a_node_for_tasks_alone_needs_no_memory_and_one_without_either_is_not_asked_for_anything() -> None:
    head = node("third", resources={"CPU": 4.0})
    head.answer["memory"] = 10**9
    nodes = node("first"), node("second"), head
    for each in nodes:
        each.answer["seen"] = ["first", "second", "third"]
    assert mistakes(Answer(nodes, "third"), HERE, NEEDS) == []
    idle = node("third", resources={"memory": 1.0}, answer=None, fault="it says no more")
    assert mistakes(Answer((node("first"), node("second"), idle), "first"), HERE, NEEDS) == []


@pytest.mark.parametrize(("nodes", "playing"), [(1, 8), (1, 9), (2, 1)])
def test_engines_on_gpus_of_their_own_are_counted_beside_those_that_train(nodes: int, playing: int) -> None:
    wrong = told(node("second"), Needs(**{**NEEDS.__dict__, "nodes": nodes, "playing": playing}))
    wanted = 8 * nodes + playing
    assert ([] if wanted <= 16 else [f"{wanted} GPUs are asked for, {playing} of them to play"]) == [
        text.partition(" (actor")[0] for text in wrong
    ]


def test_one_node_of_a_cluster_may_stay_on_itself() -> None:
    second = node("second")
    second.answer["variables"] = {"NCCL_SOCKET_IFNAME": "lo"}
    assert told(second, Needs(**{**NEEDS.__dict__, "nodes": 1})) == []


def asked(tmp_path: Path, **other: Any) -> dict[str, Any]:
    (tmp_path / "code" / "recipe").mkdir(parents=True)
    (tmp_path / "code" / "recipe" / "a.py").write_text("1")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(7))
    question = {"root": str(tmp_path / "code"), "code": ["recipe", "rewards"], "packages": ["ray", "no-such-package"]}
    question |= {"folder": str(tmp_path), "salt": "s", "paths": [str(tmp_path / "model"), str(tmp_path / "nothing")]}
    return question | {"secrets": ["A_KEY"], "variables": ["VARIABLE"], "shared": str(tmp_path / ".nodes-1"), **other}


def test_a_node_says_what_it_is_and_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "very secret")
    monkeypatch.setenv("VARIABLE", "value")
    question = asked(tmp_path)
    said = cluster.describe(question)
    assert said["folder"] and said["variables"] == {"VARIABLE": "value"} and list(said["packages"]) == ["ray"]
    assert said["paths"] == {str(tmp_path / "model"): 7, str(tmp_path / "nothing"): None}
    assert "very secret" not in repr(said)
    before = said["secrets"], said["code"]
    monkeypatch.setenv("A_KEY", "another")
    (tmp_path / "code" / "recipe" / "a.py").write_text("2")
    after = cluster.describe(question)
    assert after["secrets"] != before[0] and after["code"] != before[1]
    assert cluster.describe({**question, "root": "/no/such/folder"})["code"] is None


def test_nodes_see_each_other_in_a_shared_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SEEN_WITHIN", 1.0)
    question, nodes = asked(tmp_path), ["first", "second"]
    other = {**question, "shared": str(tmp_path / "model" / ".nodes-1")}
    with ThreadPoolExecutor() as pool:
        said = [*pool.map(lambda name: cluster.look(question, name, nodes), nodes)]
    assert [(one["wrote"], one["seen"]) for one in said] == [(None, nodes), (None, nodes)]
    alone = cluster.look(other, "second", nodes)
    assert (alone["wrote"], alone["seen"]) == (None, ["second"]) and not Path(other["shared"]).exists()
    assert "No such file" in cluster.look({**question, "shared": "/no/such/folder"}, "first", nodes)["wrote"]


def config_of(tmp_path: Path, nodes: int) -> DictConfig:
    return OmegaConf.create(
        {"trainer": {"nnodes": nodes, "n_gpus_per_node": 1}, "paths": {"run": str(tmp_path / "run")}}
    )


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(loopback, "NOTED", tmp_path / "ray_current_cluster")


def test_one_node_asks_for_no_cluster_and_several_say_how_to_start_one(tmp_path: Path) -> None:
    assert check_cluster(config_of(tmp_path, nodes=1)) is None
    with pytest.raises(PreflightError, match=r"trainer.nnodes=2 needs a Ray cluster.*run_cluster.sh.*RAY_ADDRESS="):
        check_cluster(config_of(tmp_path, nodes=2))


WHOLE = {
    "trainer": {"nnodes": 1, "n_gpus_per_node": 1, "device": "cpu", "v1": {"trainer_mode": "sync"}},
    "launcher": {"needs": {"memory_gb": 1}},
    "interaction": {"environments": {}, "user": None},
    "data": {"train_files": "rows.parquet", "val_files": ["rows.parquet", "held_out.parquet"]},
    "actor_rollout_ref": {"model": {"path": "Qwen/Qwen3-4B", "lora_adapter_path": None}, "rollout": {}},
    "reward": {"custom_reward_function": {"path": "pkg://rewards.progress"}},
}


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("ray://10.0.0.1:10001", "for Ray's clients.*RAY_ADDRESS=host:port"),
        ("127.0.0.1:{port}", "no Ray cluster answers at 127.0.0.1:{port}.*run_cluster.sh"),
        ("127.0.0.1:99999", "no Ray cluster answers at 127.0.0.1:99999"),
    ],
)
def test_an_address_where_no_cluster_is_is_told_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, text: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", address.format(port=port))
    config = OmegaConf.merge(OmegaConf.create(WHOLE), {"paths": {"run": str(tmp_path / "run")}})
    assert isinstance(config, DictConfig)
    with pytest.raises(PreflightError, match=text.format(port=port)):
        check_cluster(config)
    assert not (tmp_path / "run").exists()


def test_what_is_read_on_each_node_is_asked_for_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.parquet").touch()
    config = OmegaConf.create(WHOLE)
    assert read_paths(config) == [os.path.realpath("rows.parquet")]  # a hub id, a package and what is not here are none
