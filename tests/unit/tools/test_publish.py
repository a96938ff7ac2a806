"""The card of a model, and what is published of its folder. Nothing here reaches a network."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from omegaconf import OmegaConf
from support.finished_run import STEP, finished_run

from recipe.report.validation import validation
from recipe.stage.export import trained_with, write_card
from recipe.stage.weights import broken_export, identity
from recipe.tools.publish import complete_card, main

LAST = "stage2_base"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return finished_run(tmp_path, reward__custom_reward_function__path=f"{tmp_path}/secret/my_reward.py")


def card_of(stage: Path) -> ModelCard:
    """The card that a stage writes at its end."""
    write_card(OmegaConf.load(stage / "config" / "resolved.yaml"), stage / "hf")
    return ModelCard.load(stage / "hf" / "README.md")


def test_a_model_gets_a_card_with_base_model_licence_and_what_it_was_trained_with(tmp_path: Path, run: Path) -> None:
    before = identity(run / "stage1_format" / "hf")
    for stage in ("stage1_format", LAST):
        card = card_of(run / stage)
        assert card.data.base_model == "Qwen/Qwen2.5-7B-Instruct" and card.data.license is None, stage
        assert "vllm serve" in card.text and "--max-model-len 32768" in card.text and str(tmp_path) not in str(card)
    assert identity(run / "stage1_format" / "hf") == before and broken_export(run / LAST / "hf") is None
    (base := tmp_path / "base").mkdir()
    (base / "README.md").write_text("---\nlicense: mit\nbase_model: another/one\n---\n\n# A model\n")
    change = {"actor_rollout_ref__model__path": str(base), "interaction__docs": "signature"}
    other = finished_run(tmp_path / "other", **change) / LAST
    card = card_of(other)
    assert card.data.license == "mit" and card.data.base_model is None and "`base`" in card.text
    for folder in ("hf", "checkpoints/global_step_5/actor/huggingface"):
        assert trained_with(other / folder)["docs"] == "signature"
    away = (other / "hf").rename(tmp_path / "away")
    assert trained_with(away) == {"protocol": "think_xml", "docs": "signature"}, "from its card"
    data = {"protocol": "hermes", "docs": "json"}  # a warm start knows no interaction: its data do
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"sft.parquet": {}}, **data}))
    settings = {"model": {"path": "/base"}, "paths": {"run": "mine"}, "stage": {"name": "stage0_sft"}}
    write_card(OmegaConf.create({**settings, "data": {"train_files": [f"{tmp_path}/sft.parquet"]}}), away)
    assert trained_with(away) == data


def test_publishing_adds_history_data_and_the_scores_of_the_exported_step(run: Path) -> None:
    hf = run / LAST / "hf"
    card_of(run / "stage1_format")
    assert complete_card(hf) == [f"{hf / 'README.md'} has no license"]
    card = ModelCard.load(hf / "README.md")
    found = {(result.metric_name, result.dataset_name): result.metric_value for result in card.data.eval_results}
    assert found[("acc", "held-out tasks, all")] == 0.75
    assert card.data.datasets == ["gorilla-llm/Berkeley-Function-Calling-Leaderboard"]
    (measured,) = validation(run, run / LAST / "rollouts" / "val" / f"{STEP:06d}.jsonl")
    low, high = measured["acc"].interval
    hashes = json.loads((run / "manifest.json").read_text())["starts"][0]["data"]
    held_out = f"0.750 [{low:.3f}, {high:.3f}]", "No training task is among them"
    rewards = "**stage1_format**: 12 steps, reward `rewards.format`", "`my_reward.py`"
    for words in (*held_out, *rewards, *hashes.values()):
        assert words in card.text, words
    assert str(run.parents[1]) not in card.text
    text = (hf / "README.md").read_text()
    complete_card(hf)
    assert (hf / "README.md").read_text() == text, "nothing is added twice"


def test_known_files_are_listed_and_no_link_or_other_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hf = run / LAST / "hf"
    for name in ("model-00002.safetensors.part", "hf_token.txt", "trainer_state.json", "vocab.json"):
        (hf / name).write_text("{}")
    (hf / ".cache").mkdir()
    (hf / "merges.txt").symlink_to(run / "manifest.json")
    assert main([str(run), "--dry-run", "--repo-id", "me/mine"]) == 0
    said = capsys.readouterr().out.partition("total")[0]
    names = "README.md checksums.json config.json generation_config.json model.safetensors vocab.json"
    assert [line.split()[0] for line in said.splitlines()[1:]] == names.split()
