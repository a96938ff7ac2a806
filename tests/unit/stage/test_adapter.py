"""An adapter and its base are the model that was trained: before and after a stage hands them on, and switched at will.

verl's own engine trains and saves (one process, gloo): a first stage makes an adapter, a second one trains it further.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.files import Damaged
from recipe.stage.export import export
from recipe.stage.weights import (
    BASE,
    BASE_FILE,
    Base,
    broken_export,
    changed,
    identity,
    note_sums,
    other_base,
    read_adapter,
)

ROOT = Path(__file__).parents[3]
EQUAL: dict[str, float] = {"atol": 1e-5, "rtol": 1e-5}
"""Logits in float32: base + B A alpha / r is summed in another order than the merged weights."""

SAVE = """
import sys, torch, torch.distributed as dist
from pathlib import Path
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import recipe.cpu.engine
from verl.trainer.config import CheckpointConfig
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine.base import EngineRegistry
from recipe.stage.export import export

fp32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
ids = torch.arange(40).reshape(2, 20)
start, run = sys.argv[1:]
for stage, adapter in (("first", None), ("second", f"{run}/first/adapter")):
    model = HFModelConfig(path=start, use_remove_padding=False, enable_gradient_checkpointing=False,
                          override_config={"attn_implementation": "sdpa"}, lora_rank=8, lora_alpha=24,
                          lora_adapter_path=adapter)
    engine = EngineRegistry.new(
        model_type="language_model", backend="fsdp2", model_config=model,
        engine_config=FSDPEngineConfig(
            strategy="fsdp2", dtype="float32", mixed_precision=fp32, use_torch_compile=False),
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=1),
        checkpoint_config=CheckpointConfig(save_contents=["model", "optimizer", "extra", "hf_model"]),
    )
    engine.initialize()
    module = engine.module.eval()

    def logits():
        with torch.no_grad():
            return module(input_ids=ids).logits.float().clone()

    torch.manual_seed(1)
    seen = {"begin": logits()}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            assert parameter.requires_grad == ("lora_" in name), name
            if "lora_" in name:
                local = parameter.to_local()
                local.add_(0.05 * torch.randn(local.shape))
    torch.save(seen | {"end": logits()}, f"{run}/{stage}.pt")
    engine.save_checkpoint(f"{run}/{stage}/global_step_1/actor", global_step=1)
    source = Path(run, stage, "global_step_1/actor/huggingface")
    export(source, Path(run, stage, "hf"), start)
"""


@pytest.fixture(scope="module", params=["tied", "untied"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model `base`, and of two stages the exports and the logits at their begin and end."""
    folder = tmp_path_factory.mktemp("run")
    make_tiny_policy(folder / "base")
    if request.param == "untied":
        config = Qwen2Config.from_pretrained(folder / "base")
        config.tie_word_embeddings = False
        Qwen2ForCausalLM(config).save_pretrained(folder / "base")
    answer = subprocess.run(
        [sys.executable, "-c", SAVE, str(folder / "base"), str(folder)],
        cwd=ROOT,
        env={**os.environ, "VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return folder


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.float().eval()(input_ids=torch.arange(40).reshape(2, 20)).logits


def test_what_a_stage_hands_on_answers_as_it_did_at_its_end(run: Path) -> None:
    base = logits(load(run / "base"))
    for stage in ("first", "second"):
        trained = torch.load(run / f"{stage}.pt")["end"]
        assert (base - trained).abs().max() > 0.1, "nothing was trained, so this shows nothing"
        on_base = PeftModel.from_pretrained(load(run / "base"), run / stage / "adapter")
        torch.testing.assert_close(logits(on_base), trained, **EQUAL)
        torch.testing.assert_close(logits(load(run / stage / "hf")), trained, **EQUAL)


def test_the_sums_beside_an_export_are_its_own(run: Path) -> None:
    for stage in ("first", "second"):
        assert broken_export(run / stage / "hf") is None and changed(run / stage / "adapter") is None


def test_a_stage_begins_with_the_adapter_of_the_one_before_to_the_bit(run: Path) -> None:
    first, second = (torch.load(run / f"{stage}.pt") for stage in ("first", "second"))
    assert torch.equal(second["begin"], first["end"])
    assert (second["end"] - second["begin"]).abs().max() > 0.1


def test_the_base_stays_as_it_was_to_the_bit(run: Path) -> None:
    base = load_file(run / "base" / "model.safetensors")
    for stage in ("first", "second"):
        merged = load_file(run / stage / "hf" / "model.safetensors")
        same = {name for name in base if torch.equal(base[name].float(), merged[name].float())}
        assert {name for name in base if "_proj.weight" not in name} == same
        live = PeftModel.from_pretrained(load(run / "base"), run / stage / "adapter")
        logits(live)
        under = live.get_base_model().state_dict()
        for name, weights in base.items():
            assert torch.equal(weights.float(), under[name.replace("_proj.", "_proj.base_layer.")]), name


def test_two_adapters_switched_back_and_forth_on_one_base_answer_as_each_alone(run: Path) -> None:
    alone = {
        stage: logits(PeftModel.from_pretrained(load(run / "base"), run / stage / "adapter"))
        for stage in ("first", "second")
    }
    model = PeftModel.from_pretrained(load(run / "base"), run / "first" / "adapter", adapter_name="first")
    model.load_adapter(run / "second" / "adapter", adapter_name="second")
    for stage in ("first", "second", "first", "second", "first"):
        model.set_adapter(stage)
        assert torch.equal(logits(model), alone[stage]), stage
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(load(run / "base")))


def test_the_adapter_names_its_base_by_path_and_weights_and_knows_it_wherever_it_is(run: Path, tmp_path: Path) -> None:
    adapter = read_adapter(run / "second" / "adapter")
    assert (adapter.rank, adapter.alpha) == (8, 24)
    assert adapter.base == Base(str(run / "base"), identity(run / "base", measure=True)) and adapter.base.weights
    moved = shutil.copytree(run / "base", tmp_path / "moved")
    note_sums(moved)
    assert other_base(adapter, str(moved)) is None
    weights = load_file(moved / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, moved / "model.safetensors", metadata={"format": "pt"})
    note_sums(moved)
    assert "whose weights have the sum" in str(other_base(adapter, str(moved)))
    assert other_base(adapter, str(run / "first" / "hf")), "its own merge would be added to once more"


def test_an_adapter_from_elsewhere_is_known_by_the_path_of_its_base(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run / "first" / "adapter", tmp_path / "adapter"))
    (folder / BASE_FILE).unlink()
    (tmp_path / "link").symlink_to(run / "base")
    adapter = read_adapter(folder)
    assert other_base(adapter, str(tmp_path / "link")) is None
    assert "not to Qwen/Qwen2.5-7B" in str(other_base(adapter, "Qwen/Qwen2.5-7B"))
    of_the_hub = replace(adapter, base=Base("Qwen/Qwen2.5-7B"))
    assert other_base(of_the_hub, "Qwen/Qwen2.5-7B") is None and other_base(of_the_hub, str(run / "base"))


def settings(**changes: Any) -> Any:
    def harm(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return harm


def flipped(folder: Path) -> None:
    content = bytearray((folder / "adapter_model.safetensors").read_bytes())
    content[-9] ^= 1
    (folder / "adapter_model.safetensors").write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: shutil.rmtree(folder), "adapter_config.json is missing"),
        (
            lambda folder: (folder / "adapter_config.json").write_text("[" * 200_000),
            "adapter_config.json cannot be read",
        ),
        (lambda folder: (folder / "adapter_config.json").write_text("[]"), "lacks a setting"),
        (lambda folder: (folder / BASE_FILE).write_text("{}"), "base.json"),
        (lambda folder: (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin"), "missing"),
        (lambda folder: os.truncate(folder / "adapter_model.safetensors", 3000), "not what was written"),
        (flipped, "is not what was written"),
        (settings(peft_type="IA3"), "peft_type='IA3'; expected plain LoRA"),
        (settings(r="8"), "r='8'; expected plain LoRA"),
        (settings(lora_alpha=True), "lora_alpha=True; expected plain LoRA"),
        (settings(target_modules="(a+)+$"), "target_modules=.*expected plain LoRA"),
        (settings(target_modules=[]), "expected plain LoRA"),
        (settings(auto_mapping={"parent_library": "os"}), "auto_mapping=.*expected plain LoRA"),
        (settings(init_lora_weights="pissa"), "init_lora_weights='pissa'; expected plain LoRA"),
        (settings(lora_dropout=0.1), "lora_dropout=0.1; expected plain LoRA"),
        (settings(use_rslora=True), "use_rslora=True; expected plain LoRA"),
        (settings(use_dora=True), "use_dora=True; expected plain LoRA"),
        (settings(bias="all"), "bias='all'; expected plain LoRA"),
        (settings(rank_pattern={"q_proj": 2}), "rank_pattern=.*expected plain LoRA"),
        (settings(modules_to_save=["lm_head"]), "modules_to_save=.*expected plain LoRA"),
        (settings(of_a_later_release={"import": "os"}), "of_a_later_release=.*expected plain LoRA"),
    ],
)
def test_what_is_damaged_or_no_plain_lora_is_one_line(run: Path, tmp_path: Path, harm: Any, said: str) -> None:
    folder = Path(shutil.copytree(run / "first" / "adapter", tmp_path / "adapter"))
    harm(folder)
    with pytest.raises(Damaged, match=said) as raised:
        read_adapter(folder)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 600


def test_an_adapter_without_a_base_is_none(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run / "first" / "adapter", tmp_path / "adapter"))
    (folder / BASE_FILE).unlink()
    settings(base_model_name_or_path=None)(folder)
    with pytest.raises(Damaged, match="base_model_name_or_path=None"):
        read_adapter(folder)


def test_an_export_of_the_best_model_takes_the_note_of_its_base_along(run: Path, tmp_path: Path) -> None:
    export(run / "first" / "hf", tmp_path / "hf", str(run / "base"))
    assert BASE.read(tmp_path / "adapter" / BASE_FILE) == read_adapter(run / "first" / "adapter").base
