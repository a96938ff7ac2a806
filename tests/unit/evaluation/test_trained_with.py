"""An evaluation says where the model was trained otherwise, and plays by the turn policy that it is given."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.evaluation import gold_player, serving
from support.finished_run import finished_run

from recipe import evaluate


def test_other_settings_than_those_of_the_training_are_printed_and_kept_with_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished_run(tmp_path, interaction__docs="signature", interaction__max_tokens_per_reply=96)
    model, out = run / "stage2_base" / "hf", tmp_path / "out"
    with serving(gold_player("base")) as server:
        server.name = "model"

        @contextmanager
        def serve(*_):
            yield server.url

        monkeypatch.setattr("recipe.evaluation.server.serve", serve)
        given = ["--model", str(model), "--category", "base", "--limit", "2", "--out", str(out), "--docs", "signature"]
        assert evaluate.main(given) == 0
        assert evaluate.main([*given[:-4], "--out", f"{out}2", *given[-2:], "--max-tokens", "96"]) == 0
    words = "NOTE the model was trained with max_tokens_per_reply 96, not None."
    assert capsys.readouterr().out.count("NOTE the model was trained") == 2, "before the play, and with the results"
    assert (
        words in (out / "results.txt").read_text() and words in json.loads((out / "results.json").read_text())["note"]
    )


def test_episodes_go_by_the_turn_policy_and_give_no_score_of_bfcls(tmp_path: Path) -> None:
    for more, errors, official in (((), 4, True), (("--turn-policy", "max_format_errors_per_turn=1"), 2, False)):
        out = tmp_path / str(errors)
        with serving(lambda _: "malformed") as server:
            assert evaluate.main(["--endpoint", server.url, "--limit", "1", "--out", str(out), *more]) == 0
            assert len(server.requests) == 4 * errors
        assert (json.loads((out / "results.json").read_text())["multi_turn_official"] is not None) is official
    with pytest.raises(SystemExit):
        evaluate.main(["--endpoint", "http://x/v1", "--turn-policy", "steps=3"])
