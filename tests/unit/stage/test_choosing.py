"""Validation decides by the dev tasks only, says so beside the model, and reports the others."""

import json
from contextlib import nullcontext

import pytest
from support.evaluation import PROTOCOL, serving
from support.stages import config_of

from recipe import evaluate
from recipe.settings import compose as compose_stage
from recipe.stage import choosing, state

BY_SCORE = {"stage": "stage2_base", "setting": "stage.handover_metric", "metric": "val_dev/score"}


def test_deciding_by_tasks_that_are_reported_is_refused(tmp_path):
    for metric in ("val/score", "val_test/acc", "val-core/bfcl/base/acc/mean@1", "val_dev/acc"):
        gate = {"kind": "minimum", "value": 0.5, "metric": metric}
        config = config_of(tmp_path, stage__gate=gate, stage__handover="best", stage__handover_metric=metric)
        said, names = choosing.problems(config), ("stage.gate.metric", "stage.handover_metric")
        found = [] if metric == "val_dev/acc" else [f"{name}={metric}" for name in names]
        assert [text.split()[0] for text in said] == found
    config.stage.update({"handover": "last", "handover_metric": "val/score"})  # which decides nothing
    config.stage.gate.metric = "critic/score/mean"
    assert [*choosing.problems(config)] == [] and choosing.decisions(config) == []


def test_a_validation_is_logged_over_all_tasks_each_part_and_the_guard_alone():
    infos = {"acc": [1.0, 0.0, 0.5, None, 0.25], "note": ["text"] * 5, "part": ["dev", "test", "train", None, "guard"]}
    assert choosing.validation_metrics(["bfcl/base", "bfcl/base", "own", "own", "single"], infos) == {
        **{"val/acc": 0.5, "val_dev/acc": 1.0, "val_dev/bfcl/base/acc": 1.0},
        **{"val_test/acc": 0.0, "val_test/bfcl/base/acc": 0.0},
        **{"val_guard/acc": 0.25, "val_guard/single/acc": 0.25},
    }
    with pytest.raises(ValueError):
        choosing.validation_metrics(["own"], infos)  # a lost row would give the others parts of their neighbours
    usual = compose_stage("stage3", []).stage.handover_metric  # verl logs what it trains on as `reward`, always
    assert choosing.validation_metrics(["bfcl/base"], {"reward": [0.5], "part": ["dev"]})[usual] == 0.5


def test_what_has_decided_goes_on_to_the_models_that_start_from_it(tmp_path):
    stage, config = tmp_path / "run" / "stage2_base", config_of(tmp_path, stage__name="stage2_base")
    models = [stage / name for name in ("hf", "best/global_step_4", "checkpoints/global_step_4/actor/huggingface")]
    for model in models:
        model.mkdir(parents=True)
    config.stage.handover = "best"
    state.update(stage, chose=tuple(choosing.decisions(config)))
    assert [choosing.of_model(model) for model in models] == [[BY_SCORE]] * 3
    config.stage.update({"name": "stage3_full", "handover": "last"})
    for named in ({"path": str(stage / "hf")}, {"path": "/a", "lora_adapter_path": str(stage / "adapter")}):
        config.actor_rollout_ref.model = named
        assert choosing.decisions(config) == [BY_SCORE], named
    config.stage.gate = {"kind": "leave_at", "value": 0.5, "metric": "val_dev/acc"}
    by_gate = {"stage": "stage3_full", "setting": "stage.gate.metric", "metric": "val_dev/acc"}
    assert choosing.decisions(config) == [BY_SCORE, by_gate]
    assert choosing.of_model(tmp_path / "elsewhere" / "model") == []


def test_an_evaluation_says_which_figure_to_report_of_a_model_that_was_chosen(monkeypatch, tmp_path, capsys):
    stage = tmp_path / "stage2_base"
    (stage / "hf").mkdir(parents=True)
    (stage / "hf" / "config.json").write_text("{}")
    state.update(stage, chose=(BY_SCORE,))
    given = ["--model", str(stage / "hf"), "--hardware", "cpu", "--docs", "signature", "--category", "base"]
    assert choosing.of_run(tmp_path) == choosing.of_run(stage) == [BY_SCORE]
    assert choosing.note([BY_SCORE], "official_test").endswith(": --option split=official --split test.")
    with serving(lambda _: PROTOCOL.render_answer("done", "done")) as server:  # in place of vLLM
        monkeypatch.setattr("recipe.evaluation.server.serve", lambda *_: nullcontext(server.url))
        for split, said in {"val": True, "dev": True, "test": False, "train": False}.items():
            assert evaluate.main([*given, "--limit", "12", "--split", split, "--out", str(tmp_path / split)]) == 0
            found = json.loads((tmp_path / split / "results.json").read_text())
            for text in (capsys.readouterr().out, (tmp_path / split / "results.txt").read_text(), found["note"]):
                assert ("val_dev/score (stage2_base" in text and "--split test" in text) is said, split
            tasks = sum(group["tasks"] for group in found["parts"].values())
            assert (tasks, len(found["parts"])) == ((12, 2) if split == "val" else (0, 0))
