"""The curricula beside the default one: they compose for both machines, and the preset says what it needs."""

from pathlib import Path
from typing import Any

import pytest

from data_prep.__main__ import main as prepare_data
from recipe.curriculum import stages
from recipe.files import PreflightError
from recipe.preflight import check
from recipe.preflight.settings import notes


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


def read(name: str, *overrides: str) -> Any:
    path = stages.find(name)
    return stages.read_stages(stages.read_yaml(stages.Plan, path), path, overrides)


def test_the_4b_preset_is_two_stages_with_dynamic_sampling_and_a_small_kl():
    for hardware in ("gpu8", "cpu"):
        base, full = read("qwen3_4b", f"hardware={hardware}")
        assert (base.folder, full.folder) == ("stage2_base", "stage3_full")
        assert (base.composed.stage.previous, full.composed.stage.previous) == (None, "stage2_base")
        for config in (base.composed, full.composed):
            assert [*notes(config)] == []
            assert config.interaction.protocol == "hermes" and config.algorithm.filter_groups.enable
            assert config.actor_rollout_ref.actor.kl_loss_coef == 0.001
            assert config.actor_rollout_ref.rollout.n == (16 if hardware == "gpu8" else 8)
    assert [stage.name for stage in read("with_stage4", "hardware=tiny")] == ["stage1", "stage2", "stage3", "stage4"]


def test_its_data_are_asked_for_with_the_command_that_makes_them_and_then_a_model(tmp_path: Path):
    base, full = read("qwen3_4b", "hardware=gpu8", f"paths.data={tmp_path}/data", f"paths.run={tmp_path}/run")
    with pytest.raises(PreflightError, match=f"data_prep --out {tmp_path}/data --protocol hermes --docs json"):
        check(base.composed)
    assert prepare_data(["--out", f"{tmp_path}/data", "--protocol", "hermes"]) == 0
    with pytest.raises(PreflightError, match="MODEL="):
        check(base.composed)
    with pytest.raises(PreflightError, match="stage2_base/hf is not there"):
        check(full.composed)
