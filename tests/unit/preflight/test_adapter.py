"""A stage that trains an adapter further starts from the right one, on its base, or not at all."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.errors import PreflightError
from recipe.preflight.adapter import check_adapter_modules
from recipe.preflight.start import resolve_model
from recipe.stage import choosing, starts
from recipe.stage.adapter import note_base, weights_of
from recipe.stage.integrity import note_sums
from recipe.stage.notes import DONE, DONE_FILE, STARTED, STARTED_FILE, Done


def make_adapter(folder: Path, base: Path, seed: int = 0, **settings: Any) -> Path:
    """An adapter with random weights, as a stage leaves it."""
    torch.manual_seed(seed)
    plain: dict[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]}
    model = AutoModelForCausalLM.from_pretrained(base)
    lora = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **(plain | settings))
    made = get_peft_model(model, lora)
    made.peft_config["default"].init_lora_weights = True
    made.save_pretrained(str(folder), save_embedding_layers=False)
    note_base(folder, str(base))
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first stage has trained an adapter on `base`."""
    run = tmp_path_factory.mktemp("run")
    make_tiny_policy(run / "base")
    make_adapter(run / "one" / "adapter", run / "base")
    shutil.copytree(run / "base", run / "one" / "hf")
    note_sums(run / "one" / "hf")
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """The same, to be harmed; its base stays where it was."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def config_of(run: Path, path: Path | str | None = None, adapter: str = "continue", **model: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "paths": {"run": str(run), "stage": str(run / "two")},
            "stage": {"name": "two", "previous": "one", "adapter": adapter, "gate": None, "handover": "last"},
            "trainer": {"default_local_dir": str(run / "two" / "checkpoints"), "resume_mode": "auto"},
            "data": {"train_files": "rows.parquet", "val_files": "rows.parquet"},
            "actor_rollout_ref": {
                "model": {
                    **{"path": path and str(path), "lora_adapter_path": None, "lora_rank": 8, "lora_alpha": 16},
                    **{"target_modules": ["q_proj", "down_proj"], "exclude_modules": None},
                    **model,
                }
            },
        }
    )


def checked(config: DictConfig) -> Any:
    resolve_model(config)
    check_adapter_modules(config)
    return config.actor_rollout_ref.model


def test_one_setting_chooses_between_the_adapter_and_the_merged_model(run: Path, original: Path) -> None:
    further, anew = checked(config_of(run)), checked(config_of(run, adapter="new"))
    assert (further.path, further.lora_adapter_path) == (str(original / "base"), str(run / "one" / "adapter"))
    assert (anew.path, anew.lora_adapter_path) == (str(run / "one" / "hf"), None)


def test_the_first_stage_has_nothing_to_continue_and_trains_a_new_adapter(run: Path) -> None:
    config = config_of(run, run / "base")
    config.stage.previous = None
    assert checked(config).lora_adapter_path is None


def test_an_adapter_that_is_named_brings_its_base_along(run: Path, original: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(run))
    named = checked(config_of(run, adapter="new", lora_adapter_path="~/one/adapter"))
    assert (named.path, named.lora_adapter_path) == (str(original / "base"), f"{run}/one/adapter")


def test_a_base_that_was_moved_is_named_by_model(run: Path, original: Path) -> None:
    make_note_of_another_place(run)
    with pytest.raises(PreflightError, match="belongs to /gone/base, which is not there. Set MODEL"):
        checked(config_of(run))
    assert checked(config_of(run, run / "base")).path == str(run / "base")


def make_note_of_another_place(run: Path) -> None:
    path = run / "one" / "adapter" / "base.json"
    path.write_text(f'{{"version": 1, "model": "/gone/base", "weights": "{weights_of(str(run / "base"))}"}}')


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"lora_rank": 4}, r"lora_rank=4, and the adapter in .*/one/adapter has 8.*Set .*lora_rank=8"),
        ({"lora_alpha": 32}, r"lora_alpha=32, and the adapter in .* has 16.*Set .*lora_alpha=16"),
        ({"target_modules": "all-linear"}, r"lacks 20 of their tensors and has 0 others.*Set .*=\[down_proj,q_proj\]"),
        ({"target_modules": ["q_proj"]}, r"lacks 0 of their tensors and has 4 others.*Set .*=\[down_proj,q_proj\]"),
        ({"exclude_modules": r".*layers\.0.*"}, r"exclude_modules=.*has 4 others"),
        ({"target_modules": ["nowhere"]}, r"target_modules=\['nowhere'\] cannot be used"),
    ],
)
def test_settings_that_are_not_the_adapters_are_refused_with_what_to_set(run: Path, model: Any, said: str) -> None:
    with pytest.raises(PreflightError, match=said):
        checked(config_of(run, **model))


def test_another_base_is_refused(run: Path) -> None:
    with pytest.raises(PreflightError, match=r"another model's: it belongs to .*/base, whose weights.*Set MODEL"):
        checked(config_of(run, changed_model(run / "other")))


def test_a_base_of_another_size_is_refused_where_the_adapter_has_no_note(run: Path) -> None:
    (run / "one" / "adapter" / "base.json").unlink()
    settings = run / "one" / "adapter" / "adapter_config.json"
    make_tiny_policy(wide := run / "wide")
    model = AutoModelForCausalLM.from_pretrained(wide)
    model.config.intermediate_size *= 2
    type(model)(model.config).save_pretrained(wide)
    settings.write_text(settings.read_text().replace(str(original_base(settings)), str(wide)))
    with pytest.raises(PreflightError, match=r"down_proj.lora_A.weight has the shape \(8, \d+\), and .*/wide takes"):
        checked(config_of(run))


def original_base(settings: Path) -> str:
    import json

    return str(json.loads(settings.read_text())["base_model_name_or_path"])


def changed_model(folder: Path) -> Path:
    make_tiny_policy(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    model.save_pretrained(folder)
    return folder


def test_a_stage_before_without_an_adapter_is_named(run: Path) -> None:
    shutil.rmtree(run / "one" / "adapter")
    with pytest.raises(PreflightError, match=r"one/adapter is not there. Run the stage before it \(one\).*adapter=new"):
        checked(config_of(run))


def test_a_damaged_adapter_is_made_anew_by_its_stage(run: Path) -> None:
    os.truncate(run / "one" / "adapter" / "adapter_model.safetensors", 900)
    with pytest.raises(
        PreflightError, match=r"cut off or damaged.*delete .*/one/done\.json and start that stage again"
    ):
        checked(config_of(run))


def test_checkpoints_are_resumed_with_the_adapter_they_began_with_only(run: Path) -> None:
    config = config_of(run)
    checked(config)
    starts.note(config)
    checkpoints = run / "two" / "checkpoints"
    (checkpoints / "global_step_1").mkdir()
    (checkpoints / starts.TRACKER).write_text("1")
    starts.check_same_start(config)
    noted = STARTED.read(checkpoints / STARTED_FILE)
    assert noted is not None and noted.adapter
    make_adapter(run / "one" / "adapter", Path(noted.model), seed=1)  # its stage was trained anew
    with pytest.raises(PreflightError, match="holds checkpoints of .*adapter"):
        starts.check_same_start(config)
    with pytest.raises(PreflightError, match="holds checkpoints of"):
        starts.check_same_start(config_of(run, noted.model, "new"))


def test_a_stage_that_is_done_is_not_taken_for_one_from_another_adapter(run: Path) -> None:
    config = config_of(run)
    checked(config)
    starts.note(config)
    assert starts.other_model(config) is None and starts.other_model(config_of(run)) is None
    other = make_adapter(run / "other", run / "base", seed=2)
    assert "not trained from the adapter" in str(starts.other_model(config_of(run, lora_adapter_path=str(other))))


def test_starting_over_keeps_away_from_the_adapter_it_reads(run: Path) -> None:
    shutil.copytree(run / "one" / "adapter", run / "two" / "adapter")
    config = config_of(run, lora_adapter_path=str(run / "two" / "adapter"))
    config.trainer.resume_mode = "disable"
    with pytest.raises(PreflightError, match=r"lora_adapter_path=.*/two/adapter is in .*/two, which"):
        starts.check_same_start(config)


def test_what_validation_decided_about_an_adapter_is_known_of_what_is_trained_from_it(run: Path) -> None:
    chose = {"stage": "one", "setting": "stage.handover_metric", "metric": "val_choose/reward"}
    DONE.write(run / "one" / DONE_FILE, Done(global_step=1, model="x", chose=(chose,)))
    config = config_of(run)
    checked(config)
    assert choosing.decisions(config) == [chose]


def test_the_setting_has_two_values() -> None:
    from recipe.settings import compose

    for value in ("new", "continue"):
        compose("stage2", ["hardware=tiny", f"stage.adapter={value}"])
    with pytest.raises(PreflightError, match="stage.adapter"):
        compose("stage2", ["hardware=tiny", "stage.adapter=merged"])
