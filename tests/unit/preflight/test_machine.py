"""What a machine or a cluster lacks is said before a start, with both figures and all at once."""

import copy
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from recipe.files import PreflightError
from recipe.machine import cluster as nodes
from recipe.machine import loopback
from recipe.memory import known_model
from recipe.preflight import machine, settings, teacher

GB = machine.GB
BIG = "actor_rollout_ref.model.path=qwen3-4b"


@pytest.fixture
def lacks(configured, monkeypatch, tmp_path):
    """What a machine of that size lacks, and the notes."""

    def lacks(memory, disk, *overrides, free=None, gpus=0):
        monkeypatch.setattr(nodes, "CGROUPS", [tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"])
        sizes = SimpleNamespace(total=memory * GB, available=(memory if free is None else free) * GB)
        monkeypatch.setattr("psutil.virtual_memory", lambda: sizes)
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=disk * GB))
        monkeypatch.setattr(machine, "count_gpus", lambda: gpus)
        config, notes = configured(f"paths.run={tmp_path}/not/yet", *overrides), list[str]()
        return "\n".join(machine.lacks(config, known_model(config), notes)), "\n".join(notes)

    return lacks


def test_memory_disk_and_gpus_have_to_be_there(lacks, tmp_path):
    given = ("launcher.needs.memory_gb=6", "launcher.needs.disk_gb=2", "trainer.save_freq=-1")
    assert lacks(6, 2, *given) == ("", "needs about 6 GB of memory and 2 GB of disk")
    assert "5.0 GB of memory, 6 are needed" in lacks(5, 9, *given)[0]
    wrong, notes = lacks(7, 9, *given, free=5.6)
    assert wrong == "" and "only 6 GB of memory are free" in notes
    assert "1.0 GB are free on the disk" in lacks(7, 1, *given)[0]
    for name, limit in (("memory.max", "max"), ("memory.limit_in_bytes", 2**63 - 4096), ("memory.max", 5 * GB)):
        (tmp_path / name).write_text(f"{limit}\n")
        wrong, notes = lacks(7, 9, *given)
        assert ("5.0 GB of memory, 6 are needed" in wrong and "only 5 GB" in notes) is (limit == 5 * GB), limit
    (tmp_path / "memory.max").unlink()
    gpu = ("hardware=gpu8", "launcher.needs.memory_gb=0", "launcher.needs.disk_gb=0")
    assert "8 GPUs are asked for, 6 found" in lacks(7, 9, *gpu, gpus=6)[0]
    assert "4 of them to play" in lacks(7, 9, *gpu, "trainer=separate", "trainer.n_gpus_per_node=4", gpus=6)[0]
    assert lacks(7, 9, *gpu, "trainer.n_gpus_per_node=6", gpus=6)[0] == ""
    big = (BIG, *gpu, "trainer.n_gpus_per_node=1", "trainer.max_actor_ckpt_to_keep=2", "stage.handover=last")
    said = [lacks(999, 1, *big, *more, gpus=1)[0] for more in ((), ("stage.handover=best",), ("algorithm=tppo",))]
    sizes = [float(line.partition("about ")[2].split()[0]) for line in said]
    model = 4 * 4.022468096  # GB of float32: a checkpoint has four of them, an export one
    assert sizes == pytest.approx([14 * model, 16 * model, 23 * model], rel=0.01)
    folder = tmp_path / "not" / "yet" / "stage2_base" / "checkpoints" / "global_step_1"
    folder.mkdir(parents=True)
    with (folder / "model.pt").open("wb") as file:
        file.truncate(14 * 17 * GB)  # sparse: what a start before has written is not asked for again
    assert lacks(999, 1, *big, gpus=1)[0] == ""


def test_host_cards_and_the_way_to_the_engine_hold_the_model_as_often_as_it_is_there(lacks, configured, monkeypatch):
    stage3 = ("hardware=gpu8", BIG, "data.max_response_length=24576")
    assert "201 are needed" in lacks(150, 9999, *stage3, gpus=8)[0] and lacks(202, 9999, *stage3, gpus=8)[0] == ""
    monkeypatch.setenv("PATH", "")
    config, notes = configured(*stage3), list[str]()
    model = known_model(config)
    assert not [*machine.gpu_memory(config, model, notes)] and "GPU memory, estimated: generation" in notes[0]
    config.actor_rollout_ref.model.use_fused_kernels = False
    (wrong,) = machine.gpu_memory(config, model, [])
    assert "does not fit" in wrong and "use_fused_kernels=true" in wrong
    config.launcher.check_gpu_memory = False
    assert not [*machine.gpu_memory(config, model, notes)] and "does not fit" in notes[-1]
    config = configured("actor_rollout_ref.model.path=qwen2.5-1.5b", "launcher.needs.memory_gb=6")
    settings.fit_bucket(config, model := known_model(config))
    bucket = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
    assert bucket == -(-151936 * 1536 * 4 // 2**20), "the embedding in float32"
    assert machine.wanted_memory(config, model) / GB == pytest.approx(6 + 24 * 1.543714304)


HERE = {
    **{"python": "3.11.7", "executable": "/code/.venv/bin/python", "folder": True, "memory": 64 * GB},
    **{"code": "aa", "packages": {"verl": "0.9.1", "ray": "2.60.0"}},
    **{"secrets": {"WANDB_API_KEY": "cc"}, "variables": {}, "paths": {"/data/train.parquet": 700}},
}
ASKED = {"root": "/code", "folder": "/home/me", "shared": "/runs/first/.nodes-1"}


def node(name, **other):
    said = {**copy.deepcopy(HERE), "wrote": None, "seen": ["first", "second"]}
    made = {"id": name, "name": name, "address": "10.0.0.1", "answer": said, "resources": {"CPU": 26.0, "GPU": 8.0}}
    return nodes.Node(**{**made, **other})


def test_what_nodes_lack_for_what_they_do_is_said_with_the_node_and_all_at_once(configured):
    def cluster(*members, given=()):
        """What is wrong with these nodes."""
        config = configured("hardware=gpu8", *given)
        config.trainer.nnodes, config.launcher.needs.memory_gb = 2, 64
        return [*machine.node_problems(config, nodes.Answer(members, "first"), ASKED, HERE)]

    assert cluster(node("first"), node("second")) == []
    for changed, resources, word in (
        # facts of the second node, its resources, a word of the problem
        ({"folder": False}, {}, "/home/me"),
        ({"code": None}, {}, "/code"),
        ({"code": "ab"}, {}, "code"),
        ({"packages": {"verl": "0.9.1", "ray": "2.59.0"}, "python": "3.12.1"}, {}, "Python; packages ray"),
        ({"paths": {"/data/train.parquet": None}}, {}, "paths /data/train.parquet"),
        ({"secrets": {}}, {}, "secrets WANDB_API_KEY"),
        ({"variables": {"GLOO_SOCKET_IFNAME": "lo"}}, {}, "GLOO_SOCKET_IFNAME=lo"),
        ({"memory": 63 * GB}, {}, "63.0 GB of memory"),
        ({"wrote": "Permission denied"}, {}, "Permission denied, in /runs/first"),
        ({}, {"CPU": 25}, "--num-cpus=26"),
        ({}, {"GPU": 7}, "second (10.0.0.1) has 7"),
    ):
        second = node("second")
        second.answer.update(changed)
        second.resources.update(resources)
        (said,) = cluster(node("first"), second)
        assert word in said and "second (10.0.0.1)" in said, (word, said)
    second = node("second")
    second.answer.update({"python": "3.12.1", "memory": GB})
    assert len(cluster(node("first"), second)) == 2
    (said,) = cluster(node("first"), node("second", answer=None, fault="no answer within 60 s"))
    assert "second (10.0.0.1) cannot be asked: no answer within 60 s" in said
    unseen = node("second")
    unseen.answer["seen"].remove("first")
    assert "does not see what first" in cluster(node("first"), unseen)[0]
    head = node("third", resources={"CPU": 4.0})
    head.answer["memory"] = GB
    busy = (node("first"), node("second"), head)
    for one in busy:
        one.answer["seen"] = ["first", "second", "third"]
    assert cluster(*busy, node("fourth", resources={"memory": 1.0}, answer=None, fault="it says no more")) == []
    given = ("trainer=separate", "actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=1")
    assert "and 1 more, are asked for" in cluster(node("first"), node("second"), given=given)[0]


READ = [f"actor_rollout_ref.model.{name}" for name in ("path", "lora_adapter_path")]
READ += ["data.train_files", "data.val_files", "environment.guard", "stage.resample.pool", "offline.files"]
READ += ["interaction.user.file", "interaction.environments.mine", "reward.custom_reward_function.path", teacher.PATH]


def test_all_that_workers_read_has_to_be_on_each_node(configured, tmp_path):
    for key in READ:
        (tmp_path / key).touch()
    found = machine.read_paths(configured(*(f"++{key}={tmp_path}/{key}" for key in READ)))
    assert found == sorted(f"{tmp_path}/{key}" for key in READ)


def test_without_a_cluster_several_nodes_say_how_to_start_one(configured, tmp_path, monkeypatch):
    monkeypatch.setattr(loopback, "NOTED", tmp_path / "none")
    config = configured(f"paths.run={tmp_path}/run")
    assert machine.find_cluster(config) is None
    config.trainer.nnodes = 2
    with pytest.raises(PreflightError, match="run_cluster.sh.*RAY_ADDRESS="):
        machine.find_cluster(config)
    for address, word in (("ray://10.0.0.1:10001", "RAY_ADDRESS=host:port"), ("127.0.0.1:9", "no Ray cluster answers")):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(PreflightError, match=word):
            machine.find_cluster(config)
    assert not (tmp_path / "run").exists()


def test_a_node_says_what_it_is_and_shows_no_secret(tmp_path, monkeypatch):
    for name, size in (("code/recipe/a.py", 1), ("model/weights", 7)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(bytes(size))
    question = {"root": str(tmp_path / "code"), "code": ["recipe", "rewards"], "packages": ["ray", "no-such-package"]}
    question |= {"folder": str(tmp_path), "salt": "s", "paths": [str(tmp_path / "model"), "/nothing"]}
    question |= {"secrets": ["A_KEY"], "variables": ["VARIABLE"], "shared": str(tmp_path / ".nodes-1")}
    monkeypatch.setenv("A_KEY", "very secret")
    said = nodes.describe(question)
    assert list(said["packages"]) == ["ray"]
    assert said["paths"] == {str(tmp_path / "model"): 7, "/nothing": None} and "very secret" not in repr(said)
    monkeypatch.setenv("A_KEY", "another")
    (tmp_path / "code" / "recipe" / "b.yaml").write_text("1")
    assert all(nodes.describe(question)[name] != said[name] for name in ("secrets", "code"))
    monkeypatch.setattr(nodes, "SEEN_WITHIN", 1.0)
    with ThreadPoolExecutor() as pool:
        looks = [*pool.map(lambda name: nodes.look(question, name, ["a", "b"]), "ab")]
    assert [(one["wrote"], one["seen"]) for one in looks] == [(None, ["a", "b"])] * 2
    assert nodes.look({**question, "shared": f"{tmp_path}/.nodes-2"}, "a", ["a", "c"])["seen"] == ["a"]
    assert not (tmp_path / ".nodes-2").exists()
