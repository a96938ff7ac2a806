"""What a stage hands on is the model that was trained: with LoRA too, wherever it is loaded, and whole or not at all.

The checkpoints are written by verl's own engine and checkpoint manager (one process, gloo), which also says what the
live model answers.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.files import PreflightError
from recipe.preflight import require
from recipe.preflight.model import weights
from recipe.stage import export as module
from recipe.stage.export import ExportError, export, misfit

ROOT = Path(__file__).parents[3]

SAVE = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import recipe.cpu.engine
from verl.trainer.config import CheckpointConfig
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine.base import EngineRegistry

fp32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
ids = torch.arange(40).reshape(2, 20)
for folder, start, lora in eval(sys.argv[1]):
    model = HFModelConfig(path=start, use_remove_padding=False, enable_gradient_checkpointing=False,
                          override_config={"attn_implementation": "sdpa"}, **lora)
    engine = EngineRegistry.new(
        model_type="language_model", backend="fsdp2", model_config=model,
        engine_config=FSDPEngineConfig(
            strategy="fsdp2", dtype="float32", mixed_precision=fp32, use_torch_compile=False),
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=1),
        checkpoint_config=CheckpointConfig(save_contents=["model", "optimizer", "extra", "hf_model"]),
    )
    engine.initialize()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in engine.module.named_parameters():
            if "lora_B" in name or not lora:  # as trained: B starts at zero
                local = parameter.to_local()
                local.add_(0.05 * torch.randn(local.shape))
        engine.module.eval()
        torch.save(engine.module(input_ids=ids).logits.float(), f"{folder}/logits.pt")
    engine.save_checkpoint(f"{folder}/global_step_1/actor", global_step=1)
"""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": ("tied", {"lora_rank": 8, "lora_alpha": 24}),
    "untied": ("untied", {"lora_rank": 4, "lora_alpha": 4}),
    "some modules": ("tied", {"lora_rank": 2, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]}),
    "a layer left out": ("tied", {"lora_rank": 8, "lora_alpha": 16, "exclude_modules": r".*layers\.0\.mlp.*"}),
    "merged for vLLM": ("tied", {"lora_rank": 8, "lora_alpha": 16, "lora": {"merge": True}}),
    "no LoRA": ("tied", {}),
}


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("starts")
    make_tiny_policy(folder / "tied")
    shutil.copytree(folder / "tied", folder / "untied")
    config = Qwen2Config.from_pretrained(folder / "tied")
    config.tie_word_embeddings = False
    Qwen2ForCausalLM(config).save_pretrained(folder / "untied")
    return {name: folder / name for name in ("tied", "untied")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, starts: dict[str, Path]) -> dict[str, Path]:
    """Case -> folder with a checkpoint of verl's and the logits of the live model."""
    folders = {name: tmp_path_factory.mktemp("saved") for name in CASES}
    wanted = [(str(folders[name]), str(starts[start]), lora) for name, (start, lora) in CASES.items()]
    answer = subprocess.run(
        [sys.executable, "-c", SAVE, repr(wanted)],
        cwd=ROOT,
        env={**os.environ, "VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return folders


def hf_of(checkpoint: Path) -> Path:
    return checkpoint / "global_step_1" / "actor" / "huggingface"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.float().eval()(input_ids=torch.arange(40).reshape(2, 20)).logits


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("case", CASES)
def test_the_exported_model_answers_as_the_live_one_did(tmp_path, saved, starts, case):
    start = starts[CASES[case][0]]
    folder = export(hf_of(saved[case]), tmp_path / "hf", str(start))
    model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    live = torch.load(saved[case] / "logits.pt")
    torch.testing.assert_close(logits(model), live, atol=2e-6, rtol=1e-5)
    assert (logits(load(start)) - live).abs().max() > 0.1, "nothing was trained, so this shows nothing"
    assert set(load_file(folder / "model.safetensors")) == set(load_file(start / "model.safetensors"))
    assert (folder / "tokenizer.json").is_file() and sorted(path.name for path in tmp_path.iterdir()) == (
        ["adapter", "hf"] if CASES[case][1] else ["hf"]
    )


@pytest.mark.parametrize("case", ["tied", "untied", "a layer left out"])
def test_the_adapter_beside_it_gives_the_same_model_on_the_start_model_it_names(tmp_path, saved, starts, case):
    export(hf_of(saved[case]), tmp_path / "hf", str(starts[CASES[case][0]]))
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(starts[CASES[case][0]])
    assert (settings["r"], settings["lora_alpha"]) == tuple(CASES[case][1][key] for key in ("lora_rank", "lora_alpha"))
    model = PeftModel.from_pretrained(load(Path(settings["base_model_name_or_path"])), tmp_path / "adapter")
    torch.testing.assert_close(logits(model), torch.load(saved[case] / "logits.pt"), atol=2e-6, rtol=1e-5)


def test_a_tied_head_that_was_gathered_on_its_own_is_one_tensor_again(tmp_path, saved, starts):
    """As FSDP leaves it on several GPUs."""
    source = Path(shutil.copytree(saved["tied"] / "global_step_1" / "actor", tmp_path / "actor")) / "huggingface"
    weights = load_file(source / "model.safetensors")
    weights["base_model.model.lm_head.weight"] = weights["base_model.model.model.embed_tokens.weight"].clone()
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    folder = export(source, tmp_path / "hf", str(starts["tied"]))
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    torch.testing.assert_close(logits(load(folder)), torch.load(saved["tied"] / "logits.pt"), atol=2e-6, rtol=1e-5)


def test_an_export_can_be_exported_again_and_takes_its_adapter_along(tmp_path, saved, starts):
    best = export(hf_of(saved["tied"]), tmp_path / "best" / "global_step_1" / "hf", str(starts["tied"]))
    export(best, tmp_path / "hf", str(starts["tied"]))
    for name in ("hf/model.safetensors", "adapter/adapter_model.safetensors", "adapter/adapter_config.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "best" / "global_step_1" / name).read_bytes()
    export(hf_of(saved["no LoRA"]), tmp_path / "hf", str(starts["tied"]))
    assert not (tmp_path / "adapter").exists(), "the adapter of an earlier training stands beside a model without one"


@pytest.mark.parametrize("case", ["tied", "no LoRA"])
def test_an_export_that_is_killed_leaves_the_old_model_or_none(tmp_path, saved, starts, monkeypatch, case):
    old = export(hf_of(saved["untied"]), tmp_path / "hf", str(starts["untied"]))
    before = (old / "model.safetensors").read_bytes()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("_drop_attention", "misfit", "_replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, name, killed)
            export(hf_of(saved[case]), tmp_path / "hf", str(starts["tied"]))
        assert (old / "model.safetensors").read_bytes() == before
    new = export(hf_of(saved[case]), tmp_path / "hf", str(starts["tied"]))
    assert misfit(new) is None and not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.old"))


@pytest.mark.parametrize("name", ["varlen", "flash_attention_2", "sdpa"])
def test_the_attention_of_the_training_is_not_handed_on(tmp_path, saved, starts, name):
    source = Path(shutil.copytree(hf_of(saved["no LoRA"]), tmp_path / "source"))
    settings = json.loads((source / "config.json").read_text())
    settings |= {"attn_implementation": name, "_attn_implementation": name, "inner": {"attn_implementation": name}}
    (source / "config.json").write_text(json.dumps(settings))
    folder = export(source, tmp_path / "hf", str(starts["tied"]))
    assert name not in (folder / "config.json").read_text()
    live = torch.load(saved["no LoRA"] / "logits.pt")
    torch.testing.assert_close(logits(load(folder)), live, atol=2e-6, rtol=1e-5)


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"module.{name}": tensor for name, tensor in weights.items()}


def without_one(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in weights.items() if "layers.1.mlp.up" not in name}


def with_one_more(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return weights | {"model.layers.0.mlp.up_proj.lora_A.default.weight": torch.zeros(2, 2)}


def of_another_size(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return weights | {"model.norm.weight": torch.zeros(3)}


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (renamed, "27 tensors are missing.*26 tensors are unexpected"),
        (without_one, r"1 tensors are missing \(model.layers.1.mlp.up_proj.weight"),
        (with_one_more, r"1 tensors are unexpected \(model.layers.0.mlp.up_proj.lora_A"),
        (of_another_size, r"1 tensors are of another shape \(model.norm.weight"),
    ],
)
def test_a_model_whose_tensors_are_not_those_of_its_configuration_is_never_handed_on(tmp_path, starts, harm, said):
    source = Path(shutil.copytree(starts["tied"], tmp_path / "source"))
    save_file(harm(load_file(source / "model.safetensors")), source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ExportError, match=said):
        export(source, tmp_path / "hf", str(starts["tied"]))
    assert not (tmp_path / "hf").exists()
    if harm is with_one_more:
        require(weights(str(source)))  # a published model may have more than transformers loads
    else:
        with pytest.raises(PreflightError, match=said):
            require(weights(str(source)))


@pytest.mark.parametrize("change", [{"auto_map": {"AutoModel": "mine.Model"}}, {"architectures": ["TheirOwnModel"]}])
def test_a_model_of_a_class_of_its_own_is_left_to_who_loads_it(starts, tmp_path, change):
    folder = Path(shutil.copytree(starts["tied"], tmp_path / "theirs"))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | change))
    assert misfit(folder) is None


@pytest.mark.parametrize("text", ["{}", "{", '{"architectures": null}'])
def test_a_configuration_that_names_no_model_is_said(starts, tmp_path, text):
    folder = Path(shutil.copytree(starts["tied"], tmp_path / "model"))
    (folder / "config.json").write_text(text)
    assert "config.json" in str(misfit(folder))


def test_lora_weights_that_were_handed_on_unmerged_are_refused_as_a_start_model(tmp_path, saved):
    folder = Path(shutil.copytree(hf_of(saved["tied"]), tmp_path / "stage" / "hf"))
    with pytest.raises(PreflightError, match="is not whole: .*missing"):
        require(weights(str(folder)))
