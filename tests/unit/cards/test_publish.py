"""What is published is listed and checked first; nothing here reaches a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.finished_run import finished_run

from recipe.publish import main, size_text

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return finished_run(tmp_path)


def test_a_dry_run_lists_every_file_with_its_size_and_writes_a_missing_card(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hf = run / "stage2_base" / "hf"
    (hf / "model-00002.safetensors.part").write_text("half")
    (hf / ".cache").mkdir()
    (hf / ".cache" / "config.json").write_text("hidden")
    (hf / "hf_token.txt").write_text("hf_secret")
    (hf / "merges.txt").symlink_to(run / "manifest.json")
    (hf / "vocab.json").write_text("{}")
    own = {path for path in hf.iterdir() if path.is_file()} - {hf / "hf_token.txt", hf / "merges.txt"}
    assert main([str(run), "--dry-run", "--repo-id", "me/mine"]) == 0
    said = capsys.readouterr().out
    for path in sorted(hf.iterdir()):
        uploaded = path.name == "README.md" or path in own and path.suffix != ".part"
        assert (f"{path.name} " in said) is uploaded, path
        if uploaded:
            assert size_text(path.stat().st_size) in said
    assert (
        "README.md was not there" in said and "states no license" in said and "nothing was uploaded to me/mine" in said
    )


def test_a_card_that_is_there_is_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = run / "stage2_base" / "hf" / "README.md"
    card.write_text("---\nlicense: mit\nbase_model: a/b\n---\n\nMine.\n")
    assert main([str(run), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert card.read_text().endswith("Mine.\n") and "license" not in said and "no scores" in said


@pytest.mark.parametrize("given", ["", "stage1_format", "stage1_format/hf"])
def test_a_run_a_stage_or_a_model_can_be_named(run: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run / given), "--dry-run"]) == 0
    assert str(run / (given.split("/")[0] or "stage2_base") / "hf") in capsys.readouterr().out


def test_of_a_run_the_stage_started_last_is_taken_whatever_the_files_dates_say(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.utime(run / "stage1_format" / "done.json", (2e9, 2e9))  # a copy gives its files any dates
    assert main([str(run), "--dry-run"]) == 0
    assert str(run / "stage2_base" / "hf") in capsys.readouterr().out
    (run / "manifest.json").unlink()
    assert main([str(run), "--dry-run"]) == 1
    assert "which of stage1_format, stage2_base came last. Name one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "card", ["---\n[\n---\n", "---\n- a\n---\n", "---\nmodel-index: 3\n---\n", "---\nlicense: {\n---\n"]
)
def test_a_card_that_the_hub_would_not_take_is_refused(
    run: Path, card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "stage2_base" / "hf" / "README.md").write_text(card)
    assert main([str(run), "--dry-run"]) == 1
    assert "README.md is no card" in capsys.readouterr().err


def test_damaged_weights_are_not_published(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = run / "stage2_base" / "hf" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert main([str(run), "--dry-run"]) == 1
    assert "sum differs" in capsys.readouterr().err


def test_what_is_no_run_is_refused_with_what_was_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--dry-run"]) == 1
    assert "has no exported model: expected" in capsys.readouterr().err


def test_a_model_from_elsewhere_gets_no_made_up_card(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = (run / "stage2_base" / "hf").rename(run.parent / "model")
    assert main([str(elsewhere), "--dry-run"]) == 1
    assert "has no README.md" in capsys.readouterr().err and not (elsewhere / "README.md").exists()


def test_without_a_repository_nothing_is_tried(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run)]) == 1
    assert "Give --repo-id" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environment", [{"HF_HUB_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_without_a_network_it_is_one_line_that_says_what_is_needed(run: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "recipe.publish", str(run), "--repo-id", "me/mine"]
    surroundings = {**os.environ, **environment, "HF_TOKEN": "hf_none", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the hub did not take it" in done.stderr and "a token that may write" in done.stderr


def test_a_repository_name_that_cannot_be_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--repo-id", "a/b/c d"]) == 1
    assert "--repo-id a/b/c d" in capsys.readouterr().err
