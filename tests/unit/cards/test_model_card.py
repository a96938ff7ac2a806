"""The card of an exported model says what its run says, whatever of that is left, and nothing of it is markup."""

import json
import re
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.finished_run import STEP, finished_run, validated

from recipe.cards.model_card import model_card, note_card, write_card
from recipe.evaluation.server import fingerprint
from recipe.report.validation import validation
from recipe.stage.integrity import broken_export, identity

STAGE = "stage2_base"


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    return finished_run(tmp_path) / STAGE


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_metadata_is_what_the_hubs_library_reads(stage: Path) -> None:
    data = ModelCard(model_card(stage)).data
    assert data.base_model == "Qwen/Qwen2.5-7B-Instruct" and data.pipeline_tag == "text-generation"
    assert data.datasets == ["gorilla-llm/Berkeley-Function-Calling-Leaderboard"]
    assert data.model_name == STAGE and "protocol:think_xml" in data.tags
    found = {(result.metric_name, result.dataset_name): result.metric_value for result in data.eval_results}
    assert found[("acc", "held-out tasks, multi_turn_base (n=4)")] == 0.75


def test_scores_stand_there_with_the_intervals_of_the_report(stage: Path) -> None:
    (measured,) = validation(stage.parent, stage / "rollouts" / "val" / f"{STEP:06d}.jsonl")
    low, high = measured.acc.interval
    text = section(model_card(stage), "Scores")
    assert f"0.750 [{low:.3f}, {high:.3f}]" in text and f"step {STEP}" in text and "No training task" in text


def test_only_the_exported_models_own_validation_is_its_score(stage: Path) -> None:
    path = stage / "rollouts" / "val"
    (path / f"{STEP:06d}.jsonl").rename(path / f"{STEP - 1:06d}.jsonl")
    text = model_card(stage)
    assert "not validated" in section(text, "Scores") and ModelCard(text).data.eval_results is None


def test_training_tasks_among_the_validated_are_said(stage: Path) -> None:
    validated(stage, STEP, {"multi_turn_base_77": 1.0}, part="train")
    assert "Training tasks are among them" in section(model_card(stage), "Scores")


def test_all_stages_data_and_the_protocol_are_told(stage: Path) -> None:
    text = model_card(stage)
    training, data = section(text, "Training"), section(text, "Data")
    assert re.findall(r"\| (\d) \| (\w+) \| 12", training) == [("1", "stage1_format"), ("2", STAGE)]
    assert "pkg://rewards.format" in training and "pkg://rewards.progress" in training
    hashes = json.loads((stage.parent / "manifest.json").read_text())["starts"][0]["data"]
    assert all(digest in data for digest in hashes.values())
    assert "bfcl/base 3, bfcl/miss_func 1" in data and str(stage.parents[2]) not in text
    assert "no held-out number any more" in section(text, "Limits")
    serving = section(text, "Protocol and serving")
    assert "vllm serve" in serving and "get_weather" in serving and "--max-model-len 32768" in serving


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "pkg://rewards.progress"),
        ({"reward__custom_reward_function__path": "/home/me/secret/mine.py"}, "mine.py"),
        ({"offline__files": "rollouts"}, "stored with the trajectories"),
        (None, "not known"),
    ],
)
def test_what_a_stage_was_rewarded_with(tmp_path: Path, change: dict[str, str] | None, said: str) -> None:
    stage = finished_run(tmp_path, **(change or {})) / STAGE
    if change is None:
        (stage / "config" / "resolved.yaml").unlink()
    row = section(model_card(stage), "Training").strip().splitlines()[-3]
    assert f"| {STAGE} | {STEP} | {said} |" in row


def test_a_warm_start_was_rewarded_with_nothing(stage: Path) -> None:
    (stage / "config" / "resolved.yaml").write_text("stage: {name: stage0_sft}\nmodel: {path: a/b}\n")
    assert "none: supervised" in section(model_card(stage), "Training")


def test_a_file_that_was_changed_since_has_the_hash_of_what_was_read_and_no_rows(stage: Path) -> None:
    path = stage.parents[2] / "data" / "train.parquet"
    before = json.loads((stage.parent / "manifest.json").read_text())["starts"][0]["data"][str(path)]
    path.write_bytes(b"another")
    text = model_card(stage)
    assert before in section(text, "Data") and "not known" in section(text, "Data")
    assert "no longer known here" in section(text, "Limits")


@pytest.mark.parametrize(
    "gone",
    ["../manifest.json", "config", "config/resolved.yaml", "done.json", "rollouts", "metrics", "../stage1_format"],
)
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_whatever_is_missing_or_damaged_a_card_is_written(stage: Path, gone: str, how: str) -> None:
    path = (stage / gone).resolve()
    if path.is_dir():
        shutil.rmtree(path)
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes(b"\xff{]: [" + b"x" * 100)
    card = ModelCard(model_card(stage))
    assert card.data.library_name == "transformers" and "## Licence" in card.text


@pytest.mark.parametrize("name", ["a|b", "<script>alert(1)</script>", "x`y`", "](http://e.org)", "---\nlicense: mit"])
def test_words_of_a_run_are_no_markup_and_no_metadata(tmp_path: Path, name: str) -> None:
    change = {"interaction__protocol": name, "reward__custom_reward_function__path": name}
    stage = finished_run(tmp_path, **change) / STAGE
    text = model_card(stage)
    card = ModelCard(text)
    assert card.data.license is None and "<script" not in card.text.lower()
    rows = [line for line in section(text, "Training").splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_licence_is_that_of_the_start_models_own_card(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n")
    stage = finished_run(tmp_path) / STAGE
    assert "set `license`" in section(model_card(stage), "Licence")
    manifest = stage.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace("Qwen/Qwen2.5-7B-Instruct", str(base)))
    card = ModelCard(model_card(stage))
    assert card.data.license == "mit" and card.data.base_model is None and str(tmp_path) not in str(card)


def test_a_circle_of_notes_ends(stage: Path) -> None:
    manifest = stage.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace("Qwen/Qwen2.5-7B-Instruct", str(stage / "hf")))
    assert model_card(stage)


def test_the_model_is_the_same_with_a_card_and_without(stage: Path) -> None:
    hf = stage / "hf"
    before = identity(hf), fingerprint(hf), broken_export(hf)
    assert write_card(stage) == hf / "README.md"
    assert (identity(hf), fingerprint(hf), broken_export(hf)) == before and before[2] is None


def test_a_stage_ends_well_where_its_card_cannot_be_written(stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stage / "hf" / "README.md").mkdir()
    note_card(stage)
    assert "was not written" in capsys.readouterr().out
