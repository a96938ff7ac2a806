"""Validation decides by the dev tasks only, says so beside the model, and reports the others."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from bfcl_env import load_scenarios
from recipe import evaluate
from recipe.curriculum import compose_stage
from recipe.files import PreflightError
from recipe.gates import check_logged
from recipe.report import page, validation
from recipe.stage import choosing, end, state

DEV, TEST, TRAIN = (load_scenarios("multi_turn_base", split=part)[0].id for part in ("dev", "test", "train"))
BY_SCORE = {"stage": "stage2_base", "setting": "stage.handover_metric", "metric": "val_dev/score"}


def rows_file(path, *tasks):
    extra = [{"split": "val", "environment": "bfcl", "task_id": task} for task in tasks]
    pq.write_table(pa.table({"extra_info": extra}), path)
    return str(path)


@pytest.fixture
def config(tmp_path):
    """A stage whose validation has both parts; its settings of choosing are to be changed."""
    return OmegaConf.create(
        {
            "stage": {"name": "stage2_base", "gate": None, "handover": "last", "handover_metric": "val_dev/score"},
            "trainer": {"device": "cpu"},
            "paths": {"data": "data/tiny"},
            "data": {"val_files": rows_file(tmp_path / "val.parquet", DEV, TEST)},
            "actor_rollout_ref": {"model": {"path": None}},
        }
    )


@pytest.mark.parametrize(
    ("metric", "instead"),
    [
        ("val/score", "val_dev/score"),
        ("val/stop/completed", "val_dev/stop/completed"),
        ("val_test/acc", "val_dev/acc"),
        ("val-core/bfcl/base/acc/mean@1", "val_dev/bfcl/base/acc"),
        ("val-aux/bfcl/miss_func/progress/mean@4", "val_dev/bfcl/miss_func/progress"),
        ("val-aux/bfcl/base/acc/best@4/mean", "val_dev/bfcl/base/acc"),
    ],
)
def test_deciding_by_tasks_that_are_reported_is_refused_with_the_name_that_works(metric, instead, config):
    gate, handover = config.copy(), config.copy()
    gate.stage.gate = {"kind": "minimum", "value": 0.5, "metric": metric}
    handover.stage.update({"handover": "best", "handover_metric": metric})
    for setting, wrong in (("stage.gate.metric", gate), ("stage.handover_metric", handover)):
        with pytest.raises(PreflightError) as error:
            choosing.check(wrong)
        assert f"Set {setting}={instead}," in str(error.value)
    gate.stage.gate.metric = handover.stage.handover_metric = instead
    choosing.check(gate)
    choosing.check(handover)


def test_a_metric_that_decides_nothing_and_one_of_training_are_taken_as_they_are(config):
    config.stage.handover_metric = "val/score"  # handover=last
    choosing.check(config)
    config.stage.gate = {"kind": "leave_at", "value": 1.8}
    choosing.check(config)
    assert choosing.decisions(config) == []


@pytest.mark.parametrize("name", ["stage1", "stage2", "stage3", "stage4"])
def test_every_stage_may_hand_on_its_best_without_another_setting(name):
    end.check(compose_stage(name, ["stage.handover=best", "trainer.save_freq=12", "trainer.test_freq=12"]))


@pytest.mark.parametrize("tasks", [(TEST,), (TRAIN,), (TRAIN, TEST)])
def test_data_without_tasks_for_choosing_are_refused_where_validation_decides(tasks, config, tmp_path):
    config.data.val_files = [rows_file(tmp_path / "own.parquet", *tasks)]
    choosing.check_rows(config)
    config.stage.handover = "best"
    with pytest.raises(PreflightError, match=rf"none of the {len(tasks)} rows of .*own.parquet"):
        choosing.check_rows(config)
    row = {"split": "val", "environment": "inventory", "task_id": "move_1"}
    pq.write_table(pa.table({"extra_info": [row]}), tmp_path / "inventory.parquet")
    own = OmegaConf.merge(config, {"data": {"val_files": [str(tmp_path / "inventory.parquet")]}})
    with pytest.raises(PreflightError, match="`.venv/bin/python -m data_prep --environment FILE --out data/tiny`"):
        choosing.check_rows(own)
    config.data.val_files.append(rows_file(tmp_path / "more.parquet", DEV))
    choosing.check_rows(config)


def test_a_validation_is_logged_over_all_tasks_and_over_each_part():
    infos = {
        "acc": [1.0, 0.0, 0.5, None],
        "note": ["text"] * 4,
        "part": ["dev", "test", "train", None],
    }
    assert choosing.validation_metrics(["bfcl/base", "bfcl/base", "own", "own"], infos) == {
        "val/acc": 0.5,
        "val_dev/acc": 1.0,
        "val_dev/bfcl/base/acc": 1.0,
        "val_test/acc": 0.0,
        "val_test/bfcl/base/acc": 0.0,
    }


def test_what_a_guard_plays_is_in_no_mean_but_its_own():
    infos = {"acc": [1.0, 0.0, 0.5], "part": ["dev", "guard", "guard"]}
    assert choosing.validation_metrics(["bfcl/base", "bfcl_single/multiple", "bfcl_single/irrelevance"], infos) == {
        "val/acc": 1.0,
        "val_dev/acc": 1.0,
        "val_dev/bfcl/base/acc": 1.0,
        "val_guard/acc": 0.25,
        "val_guard/bfcl_single/multiple/acc": 0.0,
        "val_guard/bfcl_single/irrelevance/acc": 0.5,
    }


def test_tasks_of_a_guard_are_none_to_choose_by(config, tmp_path):
    config.stage.handover = "best"
    own, guard = rows_file(tmp_path / "own.parquet", TEST), rows_file(tmp_path / "guard.parquet", DEV)
    config.data.val_files = [own, guard]
    choosing.check_rows(config)
    guarded = OmegaConf.merge(config, {"environment": {"guard": guard}})
    with pytest.raises(PreflightError, match=r"none of the 1 rows of data.val_files=\S*own.parquet is one"):
        choosing.check_rows(guarded)


@pytest.mark.parametrize("returned", [{"acc": [0.5]}, {"score": [0.5], "acc": [1.0]}], ids=["number", "dict"])
def test_the_metric_of_the_hand_over_is_logged_whatever_a_reward_returns(returned):
    """verl calls a bare number `acc`, and logs what it trains on as `reward`."""
    metric = compose_stage("stage2", ["stage.handover=best"]).stage.handover_metric
    logged = choosing.validation_metrics(["bfcl/base"], {"reward": [0.5], **returned, "part": ["dev"]})
    check_logged("stage.handover_metric", metric, logged)
    assert logged[metric] == 0.5


def test_what_has_decided_goes_on_to_the_models_that_start_from_it(config, tmp_path):
    stage = tmp_path / "run" / "stage2_base"
    for folder in ("hf", "best/global_step_4", "checkpoints/global_step_4/actor/huggingface"):
        (stage / folder).mkdir(parents=True)
    config.stage.handover = "best"
    state.update(stage, chose=tuple(choosing.decisions(config)))
    for folder in ("hf", "best/global_step_4", "checkpoints/global_step_4/actor/huggingface"):
        assert choosing.of_model(stage / folder) == [BY_SCORE]
    config.stage.update({"name": "stage3_full", "handover": "last"})
    config.actor_rollout_ref.model.path = str(stage / "hf")
    assert choosing.decisions(config) == [BY_SCORE]
    config.stage.gate = {"kind": "leave_at", "value": 0.5, "metric": "val_dev/acc"}
    by_gate = {"stage": "stage3_full", "setting": "stage.gate.metric", "metric": "val_dev/acc"}
    assert choosing.decisions(config) == [BY_SCORE, by_gate]
    assert choosing.of_model(tmp_path / "elsewhere" / "model") == []


# --- an evaluation of such a model -----------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "<think>d</think>\n<answer>done</answer>"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def a_server_that_answers_done(monkeypatch):
    """In place of vLLM."""

    @contextmanager
    def serve(*_):
        with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
            server.shutdown()

    monkeypatch.setattr("recipe.evaluation.server.serve", serve)


@pytest.mark.parametrize(("split", "said"), [("val", True), ("dev", True), ("test", False), ("train", False)])
def test_an_evaluation_says_which_figure_to_report_of_a_model_that_was_chosen(
    split, said, a_server_that_answers_done, tmp_path, capsys
):
    stage = tmp_path / "stage2_base"
    (stage / "hf").mkdir(parents=True)
    (stage / "hf" / "config.json").write_text("{}")
    state.update(stage, chose=tuple([BY_SCORE]))
    given = ["--model", str(stage / "hf"), "--out", str(tmp_path / "out"), "--hardware", "cpu", "--docs", "signature"]
    assert evaluate.main([*given, "--category", "base", "--limit", "12", "--split", split]) == 0
    printed, kept = capsys.readouterr().out, (tmp_path / "out" / "results.txt").read_text()
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    for text in (printed, kept, found["note"]):
        assert ("val_dev/score (stage2_base" in text and "--split test" in text) is said
    if split == "val":
        tasks = {part: group["tasks"] for part, group in found["parts"].items()}
        assert sum(tasks.values()) == 12 and set(tasks) == {"dev", "test"}
        assert {"dev", "test"} < {line.split()[0] for line in kept.splitlines() if line}
    else:
        assert found["parts"] == {}


# --- the report of such a run ----------------------------------------------------------------------------------------


def a_validated_run(run):
    stage = run / "stage2_base"
    (stage / "metrics").mkdir(parents=True)
    (stage / "metrics" / "1.jsonl").write_text(json.dumps({"step": 1, "data": {"critic/score/mean": 0.5}}) + "\n")
    path = stage / "rollouts" / "val" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    named = {"environment": "bfcl", "category": "multi_turn_base"}
    lines = [
        {"step": 1, "session_id": 0, "uid": task, "task_id": task, "cluster": task, "part": part, **named}
        | {"score": acc, "reward": {"acc": acc}, "episode": {}}
        for task, part, acc in ((DEV, "dev", 1.0), (TEST, "test", 0.0), (TRAIN, "train", 1.0))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return stage


def test_a_report_shows_the_tasks_for_reporting_where_the_others_have_decided(tmp_path):
    stage = a_validated_run(tmp_path)
    (row,) = validation.validations(tmp_path)
    assert (row["tasks"], row["acc"].value) == (3, pytest.approx(2 / 3))
    assert "val_dev" not in page.write(tmp_path).read_text()
    state.update(stage, chose=tuple([BY_SCORE]))
    (row,) = validation.validations(tmp_path)
    assert (row["tasks"], row["acc"].value) == (1, 0.0)
    text = page.write(tmp_path).read_text()
    assert "The figure to report is that of the test tasks" in text
    assert choosing.of_run(stage) == [BY_SCORE], "the folder of one stage has its own notes"
    assert choosing.sentence([BY_SCORE, BY_SCORE]) == choosing.sentence([BY_SCORE])


def test_the_curves_of_a_run_that_chose_are_those_of_the_reporting_tasks(tmp_path):
    stage = a_validated_run(tmp_path)
    (stage / "metrics" / "later.jsonl").write_text(
        json.dumps({"step": 1, "data": {"val/progress": 0.5, "val_test/progress": 0.25}}) + "\n"
    )
    title = "validation, test tasks: progress"
    assert title not in page.write(tmp_path).read_text()
    state.update(stage, chose=tuple([BY_SCORE]))
    text = page.write(tmp_path).read_text()
    assert title in text and ">validation: progress<" not in text


def test_a_stage_that_is_not_done_has_noted_how_it_chooses(config, tmp_path):
    config.paths = {"stage": str(tmp_path / "stage2_base")}
    config.trainer = {"total_epochs": 1, "total_training_steps": None}
    config.data.update({"train_batch_size": 4, "train_files": "rows.parquet"})
    config.stage.handover = "best"
    (tmp_path / "stage2_base").mkdir()
    end.note_target(config, 4, 4)
    assert choosing.of_run(tmp_path) == [BY_SCORE]


def test_a_run_whose_validation_has_no_task_for_reporting_says_so(tmp_path):
    stage = a_validated_run(tmp_path)
    path = stage / "rollouts" / "val" / "000001.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    state.update(stage, chose=tuple([BY_SCORE]))
    assert validation.validations(tmp_path) == []
    assert "None so far, of test tasks" in page.write(tmp_path).read_text()
