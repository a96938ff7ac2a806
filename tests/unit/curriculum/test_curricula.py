"""The curricula beside the default one: they compose for both machines, and get as far as the model."""

from pathlib import Path
from typing import Any

import pytest

from data_prep.__main__ import main as prepare_data
from recipe.curriculum import stages
from recipe.files import PreflightError
from recipe.preflight import check, check_settings
from recipe.preflight.settings import notes


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


def read(*overrides: str) -> Any:
    path = stages.find("qwen3_4b")
    return stages.read_stages(stages.read_yaml(stages.Plan, path), path, overrides)


@pytest.mark.parametrize("hardware", ["gpu8", "cpu"])
def test_the_4b_preset_is_two_stages_with_dynamic_sampling_and_a_small_kl(hardware: str):
    base, full = read(f"hardware={hardware}")
    assert (base.folder, full.folder) == ("stage2_base", "stage3_full")
    assert (base.composed.stage.previous, full.composed.stage.previous) == (None, "stage2_base")
    for stage in (base, full):
        config = stage.composed
        check_settings(config)
        assert [*notes(config)] == []
        assert config.reward.custom_reward_function.path == "pkg://rewards.progress"
        assert (config.interaction.protocol, config.interaction.train.environments.bfcl.augment) == ("hermes", False)
        assert (config.algorithm.filter_groups.enable, config.algorithm.filter_groups.metric) == (True, "reward")
        assert config.actor_rollout_ref.actor.kl_loss_coef == 0.001
        assert config.actor_rollout_ref.rollout.n == (16 if hardware == "gpu8" else 8)
        assert config.actor_rollout_ref.actor.use_kl_loss is (hardware == "gpu8")


def test_its_data_are_asked_for_with_the_command_that_makes_them_and_then_a_model(tmp_path: Path):
    for hardware, made, docs in (("tiny", ["--tiny"], "signature"), ("gpu8", [], "json")):
        folder = tmp_path / hardware
        where = [f"paths.data={folder}", f"paths.run={tmp_path}/run"]
        where += [f"paths.tiny_policy={tmp_path}/none"] * (hardware == "tiny")
        base, full = read(f"hardware={hardware}", *where)
        command = " ".join(["data_prep --out", str(folder), *made, "--protocol hermes --docs", docs])
        with pytest.raises(PreflightError, match=command):
            check(base.composed)
        assert prepare_data(["--out", str(folder), *made, "--protocol", "hermes"]) == 0
        with pytest.raises(PreflightError, match="MODEL="):
            check(base.composed)
    with pytest.raises(PreflightError, match="stage2_base/hf is not there"):
        check(full.composed)
