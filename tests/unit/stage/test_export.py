"""What a stage hands on is the model that was trained: with LoRA too, wherever it is loaded, whole or not at all."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import ModelCard
from omegaconf import OmegaConf
from peft import PeftModel
from safetensors.torch import load_file, save_file
from support.finished_run import finished_run
from support.stages import edited
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.files import Damaged, PreflightError
from recipe.preflight import require
from recipe.preflight.model import weights
from recipe.stage.export import ExportError, export, misfit, trained_with, write_card
from recipe.stage.weights import BASE_FILE, Base, broken_export, changed, identity, note_sums, other_base, read_adapter

ROOT, HF = Path(__file__).parents[3], "global_step_1/actor/huggingface"
EQUAL = {"atol": 1e-5, "rtol": 1e-5}
"""Logits in float32: base + B A alpha / r is summed in another order than the merged weights."""

SAVE = """
import sys, torch, torch.distributed as dist
from pathlib import Path
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import recipe.cpu.engine
from recipe.stage.export import export
from support.engines import engine_of

ids = torch.arange(40).reshape(2, 20)
for folder, start, lora in eval(sys.argv[1]):
    engine = engine_of("language_model", start, **lora)
    module = engine.module.eval()
    torch.manual_seed(1)
    with torch.no_grad():
        begin = module(input_ids=ids).logits.float().clone()
        for name, parameter in module.named_parameters():
            assert parameter.requires_grad == ("lora_" in name or not lora), name
            if parameter.requires_grad:
                local = parameter.to_local()
                local.add_(0.05 * torch.randn(local.shape))
        torch.save({"begin": begin, "end": module(input_ids=ids).logits.float()}, f"{folder}/logits.pt")
    engine.save_checkpoint(f"{folder}/global_step_1/actor", global_step=1)
    export(Path(folder, "global_step_1/actor/huggingface"), Path(folder, "stage/hf"), start)
"""

CASES = {
    "tied": ("tied", {"lora_rank": 8, "lora_alpha": 24}),
    "continued": ("tied", {"lora_rank": 8, "lora_alpha": 24, "lora_adapter_path": "{tied}/stage/adapter"}),
    "untied": ("untied", {"lora_rank": 4, "lora_alpha": 4}),
    "a layer left out": ("tied", {"lora_rank": 8, "lora_alpha": 16, "exclude_modules": r".*layers\.0\.mlp.*"}),
    "merged for vLLM": ("tied", {"lora_rank": 8, "lora_alpha": 16, "lora": {"merge": True}}),
    "no LoRA": ("tied", {}),
}


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("starts")
    make_tiny_policy(folder / "tied")
    shutil.copytree(folder / "tied", folder / "untied")
    config = Qwen2Config.from_pretrained(folder / "tied")
    config.tie_word_embeddings = False
    Qwen2ForCausalLM(config).save_pretrained(folder / "untied")
    return {name: folder / name for name in ("tied", "untied")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory, starts):
    """Case -> folder with a checkpoint of verl's, the logits of the live model, and the export in `stage`."""
    folders = {name: tmp_path_factory.mktemp("saved") for name in CASES}
    wanted = [(str(folders[name]), str(starts[start]), dict(lora)) for name, (start, lora) in CASES.items()]
    wanted[1][2]["lora_adapter_path"] = f"{folders['tied']}/stage/adapter"
    given = {**os.environ, "VERL_PLATFORM": "cpu", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", SAVE, repr(wanted)]
    answer = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return folders


def logits(model):
    with torch.no_grad():
        return model.float().eval()(input_ids=torch.arange(40).reshape(2, 20)).logits


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("case", CASES)
def test_the_export_and_its_adapter_answer_as_the_live_model_did(saved, starts, case, tmp_path):
    start, (_, lora) = starts[CASES[case][0]], CASES[case]
    folder, (begin, live) = saved[case] / "stage" / "hf", torch.load(saved[case] / "logits.pt").values()
    if case == "continued":  # a stage begins with the adapter of the one before to the bit
        assert torch.equal(begin, torch.load(saved["tied"] / "logits.pt")["end"])
    model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    torch.testing.assert_close(logits(model), live, **EQUAL)
    for other in (logits(load(start)), begin):
        assert (other - live).abs().max() > 0.1, "nothing was trained, so this shows nothing"
    before, merged = (load_file(path / "model.safetensors") for path in (start, folder))
    assert before.keys() == merged.keys() and broken_export(folder) is None
    assert AutoConfig.from_pretrained(folder).dtype == merged["model.norm.weight"].dtype == torch.float32
    names = sorted(path.name for path in folder.parent.iterdir())
    assert (folder / "tokenizer.json").is_file() and names == (["adapter", "hf"] if lora else ["hf"])
    if lora:
        adapter = read_adapter(folder.with_name("adapter"))
        assert (adapter.rank, adapter.alpha, changed(adapter.folder)) == (lora["lora_rank"], lora["lora_alpha"], None)
        assert adapter.base == Base(str(start), identity(start, measure=True)) and adapter.base.weights
        torch.testing.assert_close(logits(PeftModel.from_pretrained(load(start), adapter.folder)), live, **EQUAL)
        for name in before:
            assert "_proj.weight" in name or torch.equal(before[name].float(), merged[name].float()), name
    if case == "tied":  # FSDP leaves a tied head gathered on its own on several GPUs
        source = Path(shutil.copytree(saved[case] / "global_step_1" / "actor", tmp_path / "actor")) / "huggingface"
        tensors = load_file(source / "model.safetensors")
        tensors["base_model.model.lm_head.weight"] = tensors["base_model.model.model.embed_tokens.weight"].clone()
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
        assert load_file(export(source, tmp_path / "hf", str(start)) / "model.safetensors").keys() == merged.keys()
        torch.testing.assert_close(logits(load(tmp_path / "hf")), live, **EQUAL)


def test_an_adapter_knows_its_base_wherever_that_is(saved, starts, tmp_path):
    folder = Path(shutil.copytree(saved["continued"] / "stage" / "adapter", tmp_path / "adapter"))
    adapter, moved = read_adapter(folder), shutil.copytree(starts["tied"], tmp_path / "moved")
    note_sums(moved)
    assert other_base(adapter, str(moved)) is None
    tensors = load_file(moved / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, moved / "model.safetensors", metadata={"format": "pt"})
    note_sums(moved)
    assert other_base(adapter, str(moved))
    assert other_base(adapter, str(saved["tied"] / "stage" / "hf")), "its own merge would be added to once more"
    (folder / BASE_FILE).unlink()  # as one from elsewhere
    (tmp_path / "link").symlink_to(starts["tied"])
    adapter = read_adapter(folder)
    assert other_base(adapter, str(tmp_path / "link")) is None and other_base(adapter, "Qwen/Qwen2.5-7B")
    of_the_hub = replace(adapter, base=Base("Qwen/Qwen2.5-7B"))
    assert other_base(of_the_hub, "Qwen/Qwen2.5-7B") is None and other_base(of_the_hub, str(starts["tied"]))


def test_an_adapter_that_is_damaged_or_no_plain_lora_is_one_line(saved, tmp_path):
    settings = [{"peft_type": "IA3"}, {"r": "8"}, {"lora_alpha": True}, {"use_dora": True}, {"bias": "all"}]
    settings += [{"target_modules": "(a+)+$"}, {"auto_mapping": {"parent_library": "os"}}, {"newer": {"import": "os"}}]
    nameless = edited("adapter_config.json", base_model_name_or_path=None)
    harms = [
        lambda folder: (folder / "adapter_config.json").unlink(),
        lambda folder: (folder / "adapter_config.json").write_text("[]"),
        lambda folder: (folder / BASE_FILE).write_text("{}"),
        lambda folder: os.truncate(folder / "adapter_model.safetensors", 3000),
        lambda folder: save_file({"other": torch.zeros(1)}, folder / "adapter_model.safetensors"),
        lambda folder: [(folder / BASE_FILE).unlink(), nameless(folder)],
        *(edited("adapter_config.json", **changes) for changes in settings),
    ]
    for number, harm in enumerate(harms):
        folder = Path(shutil.copytree(saved["tied"] / "stage" / "adapter", tmp_path / str(number)))
        harm(folder)
        with pytest.raises(Damaged) as raised:
            read_adapter(folder)
            pytest.fail(f"harm {number} passes")
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 600


def test_an_export_can_be_exported_again_and_takes_its_adapter_along(tmp_path, saved, starts):
    best = saved["tied"] / "stage"
    export(best / "hf", tmp_path / "hf", str(starts["tied"]))
    for name in ("hf/model.safetensors", "adapter/adapter_model.safetensors", "adapter/adapter_config.json"):
        assert (tmp_path / name).read_bytes() == (best / name).read_bytes()
    assert read_adapter(tmp_path / "adapter").base == read_adapter(best / "adapter").base
    source = Path(shutil.copytree(saved["no LoRA"] / HF, tmp_path / "other" / "source"))
    tensors = {name: tensor.half() for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"inner": {"torch_dtype": config.pop("dtype")}}))
    export(source, tmp_path / "hf", str(starts["tied"]))
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["dtype"] == config["inner"]["torch_dtype"] == "float16", "what the weights are"
    assert not (tmp_path / "adapter").exists(), "the adapter of an earlier training stands beside a model without one"


@pytest.mark.parametrize("case", ["tied", "no LoRA"])
def test_an_export_that_is_killed_leaves_the_old_model_or_none(tmp_path, saved, starts, monkeypatch, case):
    old = export(saved["untied"] / "stage" / "hf", tmp_path / "hf", str(starts["untied"]))
    before = (old / "model.safetensors").read_bytes()
    for name in ("_write_config", "misfit", "_replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"recipe.stage.export.{name}", Mock(side_effect=KeyboardInterrupt))
            export(saved[case] / HF, tmp_path / "hf", str(starts["tied"]))
        assert (old / "model.safetensors").read_bytes() == before
    new = export(saved[case] / HF, tmp_path / "hf", str(starts["tied"]))
    assert misfit(new) is None and not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.old"))


def test_a_model_whose_tensors_are_not_those_of_its_configuration_is_never_handed_on(tmp_path, starts):
    whole = load_file(starts["tied"] / "model.safetensors")
    surplus = {"model.layers.0.mlp.up_proj.lora_A.default.weight": torch.zeros(2, 2)}
    harmed = {
        r"1 tensors are missing \(model.norm": {name: whole[name] for name in whole if name != "model.norm.weight"},
        r"1 tensors are of another shape \(model.norm.weight": whole | {"model.norm.weight": torch.zeros(3)},
        r"1 tensors are unexpected \(model.layers.0.mlp.up_proj.lora_A": whole | surplus,
    }
    source = Path(shutil.copytree(starts["tied"], tmp_path / "source"))
    content = json.loads((source / "config.json").read_text()) | {"inner": {"_attn_implementation": "varlen"}}
    (source / "config.json").write_text(json.dumps(content))
    assert "varlen" not in (export(source, tmp_path / "fits" / "hf", "start") / "config.json").read_text()
    for said, tensors in harmed.items():
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ExportError, match=said):
            export(source, tmp_path / "hf", str(starts["tied"]))
        assert not (tmp_path / "hf").exists()
        if "lora_A" not in said:
            with pytest.raises(PreflightError, match=said):
                require(weights(str(source)))
    require(weights(str(source)))  # a published model may have more than transformers loads
    for change in ({"auto_map": {"AutoModel": "mine.Model"}}, {"architectures": ["TheirOwnModel"]}):
        (source / "config.json").write_text(json.dumps(content | change))
        assert misfit(source) is None, "a class that transformers does not have is not judged"


def card_of(stage):
    write_card(OmegaConf.load(stage / "config" / "resolved.yaml"), stage / "hf")
    return ModelCard.load(stage / "hf" / "README.md")


def test_a_model_gets_a_card_with_base_model_licence_and_what_it_was_trained_with(tmp_path):
    run = finished_run(tmp_path, reward__custom_reward_function__path=f"{tmp_path}/secret/my_reward.py")
    before = identity(run / "stage1_format" / "hf")
    for stage in ("stage1_format", "stage2_base"):
        card = card_of(run / stage)
        assert card.data.base_model == "Qwen/Qwen2.5-7B-Instruct" and card.data.license is None, stage
        assert "vllm serve" in card.text and "--max-model-len 32768" in card.text and str(tmp_path) not in str(card)
    assert identity(run / "stage1_format" / "hf") == before and broken_export(run / "stage2_base" / "hf") is None
    (base := tmp_path / "base").mkdir()
    (base / "README.md").write_text("---\nlicense: mit\nbase_model: another/one\n---\n\n# A model\n")
    change = {"actor_rollout_ref__model__path": str(base), "interaction__docs": "signature"}
    other = finished_run(tmp_path / "other", **change) / "stage2_base"
    assert (card := card_of(other)).data.license == "mit" and card.data.base_model is None and "`base`" in card.text
    for folder in ("hf", "checkpoints/global_step_5/actor/huggingface"):
        assert trained_with(other / folder)["docs"] == "signature"
    away = (other / "hf").rename(tmp_path / "away")
    assert trained_with(away) == {"protocol": "think_xml", "docs": "signature"}, "from its card"
    data = {"protocol": "hermes", "docs": "json"}  # a warm start knows no interaction: its data do
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"sft.parquet": {}}, **data}))
    settings = {"model": {"path": "/base"}, "paths": {"run": "mine"}, "stage": {"name": "stage0_sft"}}
    write_card(OmegaConf.create({**settings, "data": {"train_files": [f"{tmp_path}/sft.parquet"]}}), away)
    assert trained_with(away) == data
