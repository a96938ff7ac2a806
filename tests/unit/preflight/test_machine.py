"""Memory and disk are looked at before the start, and the message has both figures."""

import json
from collections import namedtuple

import pytest
from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.memory.__main__ import compose_stage
from recipe.preflight.batches import fit_bucket
from recipe.preflight.machine import (
    GB,
    check_disk,
    check_host_memory,
    check_machine,
    checkpoint_bytes,
    needs_line,
    wanted_memory,
)

Usage = namedtuple("Usage", "total used free")
Memory = namedtuple("Memory", "total available")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(1000))
    return OmegaConf.create(
        {
            "launcher": {"needs": {"memory_gb": 6, "disk_gb": 2}},
            "paths": {"stage": str(tmp_path / "not" / "there" / "yet")},
            "trainer": {
                "save_freq": 5,
                "max_actor_ckpt_to_keep": 2,
                "resume_mode": "auto",
                "default_local_dir": str(tmp_path / "not" / "there" / "yet" / "checkpoints"),
            },
            "actor_rollout_ref": {"model": {"path": str(tmp_path / "model")}},
            "critic": {"enable": False},
            "stage": {"handover": "last"},
        }
    )


@pytest.fixture
def machine(monkeypatch):
    def make(memory_gb, disk_gb, free_gb=None):
        memory = Memory(memory_gb * GB, (memory_gb if free_gb is None else free_gb) * GB)
        monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
        monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, disk_gb * GB))

    return make


def check_room(config, _):
    check_host_memory(config)
    check_disk(config)


def test_a_machine_with_room_passes(config, machine):
    check_room(config, machine(7, 3))


def test_too_little_memory_is_named(config, machine):
    with pytest.raises(PreflightError, match=r"has 5\.0 GB of memory, this run needs 6: .*launcher\.needs\.memory_gb"):
        check_room(config, machine(5, 3))


def test_memory_that_is_taken_just_now_is_a_line_and_stops_nothing(config, machine):
    check_room(config, machine(7, 3, free_gb=5))
    assert needs_line(config) == (
        "NEEDS about 6 GB of memory and 2 GB of disk. Only 5 GB of memory are free just now: end what else runs here"
    )
    machine(7, 3)
    assert needs_line(config) == "NEEDS about 6 GB of memory and 2 GB of disk"


def test_too_little_disk_is_named(config, machine):
    with pytest.raises(PreflightError, match=r"1\.0 GB are free .* about 2\.0 GB .*paths\.run"):
        check_room(config, machine(7, 1))


def test_the_disk_must_hold_all_checkpoints_of_a_large_model(config, machine, monkeypatch):
    assert checkpoint_bytes(config) == 1000 * (8 * 3 + 2 * 2)
    monkeypatch.setattr("recipe.preflight.machine.CHECKPOINT_PER_WEIGHTS", GB // 1000)
    with pytest.raises(PreflightError, match=r"about 3\.0 GB are needed for 2 checkpoints"):
        check_room(config, machine(7, 2))
    config.trainer.save_freq = -1
    check_room(config, machine(7, 2))


def test_a_critic_is_checkpointed_too(config):
    config.critic.enable = True
    assert checkpoint_bytes(config) == 1000 * (2 * 8 * 3 + 2 * 2)


def test_a_copy_of_the_best_model_takes_room_too(config):
    config.stage.handover = "best"
    assert checkpoint_bytes(config) == 1000 * (8 * 3 + 2 * 4)


def test_what_a_start_before_has_written_is_not_asked_for_again(config, machine, monkeypatch, tmp_path):
    monkeypatch.setattr("recipe.preflight.machine.CHECKPOINT_PER_WEIGHTS", GB // 1000)
    config.launcher.needs.disk_gb = 0
    with pytest.raises(PreflightError):
        check_room(config, machine(7, 2))
    folder = tmp_path / "not" / "there" / "yet" / "checkpoints" / "global_step_1"
    folder.mkdir(parents=True)
    with (folder / "model.pt").open("wb") as file:
        file.truncate(2 * GB)  # sparse
    check_room(config, machine(7, 2))


@pytest.fixture
def on_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")  # no nvidia-smi
    return compose_stage("stage3", ["actor_rollout_ref.model.path=qwen3-4b", f"paths.run={tmp_path}"])


def test_the_host_must_hold_the_model_as_often_as_it_is_loaded(on_gpus, machine):
    with pytest.raises(PreflightError, match=r"this run needs 201: processes 64 .*reference 8, loading 129"):
        check_room(on_gpus, machine(150, 1000))
    check_room(on_gpus, machine(202, 1000))


def test_the_disk_must_hold_what_the_models_configuration_says(on_gpus):
    assert checkpoint_bytes(on_gpus) / GB == pytest.approx(4.02 * (16 * 3 + 4 * 2), rel=0.01)


def test_a_look_from_a_machine_without_gpus_goes_on_and_says_what_is_missing(on_gpus, machine, capsys):
    machine(1000, 1)  # the memory is this machine's
    with pytest.raises(PreflightError, match="nvidia-smi shows none"):
        check_machine(on_gpus)
    on_gpus.preflight_only = True
    lacks = check_machine(on_gpus)
    assert "nvidia-smi shows none" in lacks[0] and "GB are free on the disk" in str(lacks)
    assert "GPU memory, estimated: generation" in capsys.readouterr().out
    on_gpus.actor_rollout_ref.model.use_fused_kernels = False
    with pytest.raises(PreflightError, match="does not fit"):
        check_machine(on_gpus)


def test_a_larger_model_takes_more_of_a_machine_without_gpus_and_of_the_way_to_the_engine(tmp_path):
    given = [f"actor_rollout_ref.model.path={tmp_path}", f"paths.run={tmp_path}", "hardware=tiny"]
    wanted, buckets = [], []
    for embedding in (2048, 49152):
        sizes = {"vocab_size": embedding, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
        heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes, **heads}))
        config = compose_stage("stage1", given)
        fit_bucket(config)
        wanted.append(wanted_memory(config) / GB)
        buckets.append(config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes)
    assert buckets == [64, 108], "the embedding takes 49152 * 576 * 4 bytes"
    assert wanted == pytest.approx([6 + 24 * 0.10738, 6 + 24 * 0.13452], rel=1e-3)
