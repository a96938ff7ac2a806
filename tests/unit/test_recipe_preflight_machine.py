"""Memory and disk are looked at before the start, and the message has both figures."""

from collections import namedtuple

import pytest
from omegaconf import OmegaConf

from recipe.preflight import PreflightError
from recipe.preflight_machine import GB, check_room, checkpoint_bytes

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(1000))
    return OmegaConf.create(
        {
            "launcher": {"needs": {"memory_gb": 6, "disk_gb": 2}},
            "paths": {"stage": str(tmp_path / "not" / "there" / "yet")},
            "trainer": {"save_freq": 5, "max_actor_ckpt_to_keep": 2},
            "actor_rollout_ref": {"model": {"path": str(tmp_path / "model")}},
            "critic": {"enable": False},
            "stage": {"handover": "last"},
        }
    )


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def make(memory_gb, disk_gb):
        path = tmp_path / "meminfo"
        path.write_text(f"MemTotal: 99 kB\nMemAvailable:   {memory_gb * GB // 1024} kB\n")
        monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, disk_gb * GB))
        return path

    return make


def test_a_machine_with_room_passes(config, machine):
    check_room(config, machine(7, 3))


def test_too_little_memory_is_named(config, machine):
    with pytest.raises(PreflightError, match=r"5\.0 GB of memory are free, this profile needs 6"):
        check_room(config, machine(5, 3))


def test_too_little_disk_is_named(config, machine):
    with pytest.raises(PreflightError, match=r"1\.0 GB are free .* about 2\.0 GB .*paths\.run"):
        check_room(config, machine(7, 1))


def test_the_disk_must_hold_all_checkpoints_of_a_large_model(config, machine, monkeypatch):
    assert checkpoint_bytes(config) == 1000 * (8 * 3 + 2 * 2)
    monkeypatch.setattr("recipe.preflight_machine.CHECKPOINT_PER_WEIGHTS", GB // 1000)
    with pytest.raises(PreflightError, match=r"about 3\.0 GB are needed for 2 checkpoints"):
        check_room(config, machine(7, 2))
    config.trainer.save_freq = -1
    check_room(config, machine(7, 2))


def test_a_system_that_does_not_tell_its_memory_passes(config, machine, tmp_path):
    machine(7, 3)
    check_room(config, tmp_path / "nothing")


def test_a_critic_is_checkpointed_too(config):
    config.critic.enable = True
    assert checkpoint_bytes(config) == 1000 * (2 * 8 * 3 + 2 * 2)


def test_a_copy_of_the_best_model_takes_room_too(config):
    config.stage.handover = "best"
    assert checkpoint_bytes(config) == 1000 * (8 * 3 + 2 * 4)


def test_what_a_start_before_has_written_is_not_asked_for_again(config, machine, monkeypatch, tmp_path):
    monkeypatch.setattr("recipe.preflight_machine.CHECKPOINT_PER_WEIGHTS", GB // 1000)
    config.launcher.needs.disk_gb = 0
    with pytest.raises(PreflightError):
        check_room(config, machine(7, 2))
    folder = tmp_path / "not" / "there" / "yet" / "checkpoints" / "global_step_1"
    folder.mkdir(parents=True)
    with (folder / "model.pt").open("wb") as file:
        file.truncate(2 * GB)  # sparse
    check_room(config, machine(7, 2))
