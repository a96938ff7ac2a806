"""The card of a model."""

import json

from huggingface_hub import ModelCard
from omegaconf import OmegaConf
from support.finished_run import finished_run

from recipe.stage.export import trained_with, write_card
from recipe.stage.weights import broken_export, identity


def card_of(stage):
    """The card that a stage writes at its end."""
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
