"""Where the time of steps went: nothing is counted twice, nothing is claimed that was not logged."""

import json

import pytest
from support.runs import write_metrics

from recipe.stage.metrics_log import TRAINED_FILE, note_trained, parts_of, read_steps, time_line, trained_files

TIMED = {"step": 20.0, "gen": 8.0, "old_log_prob": 2.0, "ref": 1.0, "update_actor": 6.0}
TIMED |= {"update_weights": 0.5, "save_checkpoint": 0.5, "testing": 5.0}
STEP = {f"timing_s/{name}": value for name, value in TIMED.items()}
PLAYED = {"generate": 6.0, "environment": 1.0, "user": 2.0, "reward": 0.5, "total": 10.0}
SAID = {f"train/seconds/{name}": value for name, value in PLAYED.items()}


def test_the_parts_of_a_step_and_its_validation_are_its_whole_time(tmp_path):
    parts = parts_of({**STEP, **SAID})
    assert sum(parts.values()) == pytest.approx(25.0)
    assert parts["environment"] == pytest.approx(0.8) and parts["users"] == pytest.approx(1.6)
    assert parts["generation"] == pytest.approx(8.0 * 0.65), "and what an episode does not say is the engine's"
    assert (parts["log-probs"], parts["validation"], parts["rest"]) == (3.0, 5.0, pytest.approx(2.0))
    assert parts_of({"timing_s/gen": 8.0, **SAID}) == {}, "without the whole nothing can be said of its parts"
    write_metrics(tmp_path, "stage", "1.jsonl", [(step, STEP | SAID) for step in (1, 2)])
    said = "time: update 24 %, generation 21 %, validation 20 %, log-probs 12 %, rest 8 %, users 6 %, environment 3 %"
    assert time_line(tmp_path / "stage") == f"{said}, weights 2 %, checkpoint 2 %, rewards 2 %"
    assert parts_of(STEP)["generation"] == 8.0 and not {"environment", "values"} & parts_of(STEP).keys()


def test_a_resumed_launch_replaces_what_it_trains_again_and_adds_to_what_it_validates_again(tmp_path):
    launches = {
        "1": [(0, {"val/acc": 0}), (1, {"loss": 1, "val/acc": 1}), (2, {"loss": 2, "filtered": 2}), (3, {"loss": 3})],
        "2": [(1, {"val/acc": 4, "val_dev/acc": 4})],  # and killed
        "3": [(1, {"val_test/acc": 5}), (2, {"loss": 6}), (2, {"val/acc": 6})],
    }
    (tmp_path / "metrics").mkdir()
    for name, steps in launches.items():
        lines = [json.dumps({"step": step, "data": data}) for step, data in steps]
        (tmp_path / "metrics" / f"{name}.jsonl").write_text("\n".join([*lines, '{"step": 9, "da']))
    validated = {"loss": 1, "val/acc": 4, "val_dev/acc": 4, "val_test/acc": 5}
    assert read_steps(tmp_path) == {0: {"val/acc": 0}, 1: validated, 2: {"loss": 6, "val/acc": 6}}
    assert read_steps(tmp_path, skip=["3.jsonl"])[3] == {"loss": 3}


def test_files_and_groups_of_a_step_are_those_noted_last_and_padding_is_none(tmp_path):
    folder = tmp_path / "rollouts" / "train"
    assert trained_files(tmp_path, 3) == {folder / "000003.jsonl": None}
    first, second = ({"global_steps": step} for step in (1, 2))
    note_trained(tmp_path, 2, ["old_0_0"], [first])
    with (tmp_path / TRAINED_FILE).open("a") as file:
        file.write('{"step": 2, "pla\n')
    note_trained(tmp_path, 2, ["a_0_0", "a_1_0", "b_0_0", "c_0_0"], [first, first, second, {"is_padding": True}])
    note_trained(tmp_path, 3, ["d_0_0"], [second])
    assert trained_files(tmp_path, 2) == {folder / "000001.jsonl": {"a"}, folder / "000002.jsonl": {"b"}}
    assert trained_files(tmp_path, 9) == {folder / "000009.jsonl": None}  # of a launch that did not play on
