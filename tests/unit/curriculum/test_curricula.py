"""The curricula beside the default one: they compose for both machines, and the preset says what it needs."""

from pathlib import Path

import pytest

from data_prep.__main__ import main as prepare_data
from recipe.curriculum import stages
from recipe.files import PreflightError
from recipe.preflight import check


def test_the_data_of_the_4b_preset_are_asked_for_with_their_command_and_then_a_model(tmp_path: Path, monkeypatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)
    path, given = stages.find("qwen3_4b"), ["hardware=gpu8", f"paths.data={tmp_path}/data", f"paths.run={tmp_path}/run"]
    base, full = stages.read_stages(stages.read_yaml(stages.Plan, path), path, given)
    with pytest.raises(PreflightError, match=f"data_prep --out {tmp_path}/data --protocol hermes --docs json"):
        check(base.composed)
    assert prepare_data(["--out", f"{tmp_path}/data", "--protocol", "hermes"]) == 0
    with pytest.raises(PreflightError, match="MODEL="):
        check(base.composed)
    with pytest.raises(PreflightError, match="stage2_base/hf is not there"):
        check(full.composed)
