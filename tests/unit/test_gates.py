"""Gates: when a stage is left, when it has failed, and what a gate may not say."""

import pytest

from recipe.files import PreflightError
from recipe.gates import Gate, check_logged, values_until


def gate(**settings) -> Gate:
    found = Gate.parse({"kind": "leave_at", "value": 1.8, "window": 3, **settings})
    assert found is not None
    return found


def test_a_stage_is_left_when_the_mean_of_the_window_reaches_the_value():
    assert gate().reason_to_leave([1.0, 2.0, 2.0]) is None
    assert gate().reason_to_leave([1.0, 1.9, 1.7, 1.8]) == "critic/score/mean reached 1.800 (gate 1.8)"


def test_one_lucky_step_and_a_start_shorter_than_the_window_do_not_leave_it():
    assert gate().reason_to_leave([2.0, 2.0]) is None
    assert gate().reason_to_leave([1.0, 1.0, 2.0]) is None


def test_a_plateau_needs_patience_values_without_a_rise():
    plateau = gate(kind="plateau", value=None, window=1, patience=3, min_delta=0.01)
    rising, flat = [0.1, 0.2, 0.3], [0.3, 0.305, 0.29]
    assert plateau.reason_to_leave(rising) is None
    assert plateau.reason_to_leave(rising + flat[:2]) is None
    assert plateau.reason_to_leave(rising + flat) is not None
    assert plateau.reason_to_leave([*rising, *flat, 0.4]) is None


def test_a_plateau_below_its_value_is_a_stage_that_never_began_to_learn():
    plateau = gate(kind="plateau", value=0.5, window=1, patience=3)
    assert plateau.reason_to_leave([0.1] * 20) is None
    assert plateau.reason_to_leave([0.6] * 20) is not None
    assert not plateau.judge([0.1] * 20)[0]


def test_a_minimum_never_ends_a_stage_and_always_stops_the_curriculum_when_missed():
    minimum = gate(kind="minimum", value=0.5)
    assert minimum.reason_to_leave([1.0] * 10) is None
    assert minimum.stops
    assert minimum.judge([0.4, 0.5, 0.6]) == (
        True,
        "critic/score/mean over the last 3 values is 0.500, not below the gate's 0.5",
    )
    passed, text = minimum.judge([0.4, 0.4, 0.4])
    assert not passed and "is 0.400, below the gate's 0.5" in text


def test_a_value_to_leave_at_that_was_not_reached_stops_only_where_it_is_required():
    assert not gate().judge([1.0] * 5)[0]
    assert not gate().stops
    assert gate(required=True).stops


def test_too_few_values_are_no_pass():
    passed, text = gate(kind="minimum").judge([2.0])
    assert not passed and "1 values" in text


def test_a_gate_that_cannot_work_says_what_to_change():
    wrong = {
        "stage.gate.kind='leave'": {"kind": "leave"},
        "stage.gate.kind is missing": {"value": 1},
        "stage.gate.value": {"kind": "minimum", "value": None},
        "stage.gate.windw is not known": {"kind": "minimum", "value": 1, "windw": 2},
        "stage.gate.window=0": {"kind": "plateau", "window": 0},
        "stage.gate.patience=2.5": {"kind": "plateau", "patience": 2.5},
        "stage.gate.value='high'": {"kind": "leave_at", "value": "high"},
        "stage.gate.value=nan": {"kind": "leave_at", "value": float("nan")},
        "stage.gate.required='no'": {"kind": "leave_at", "value": 1, "required": "no"},
    }
    for message, setting in wrong.items():
        with pytest.raises(PreflightError, match=message):
            Gate.parse(setting)


def test_a_metric_that_is_not_logged_is_an_error_with_the_names_close_to_it():
    with pytest.raises(PreflightError, match="critic/score/mean"):
        check_logged("stage.gate.metric", "critic/scores/mean", {"critic/score/mean": 1.0})
    check_logged("stage.gate.metric", "val/progress", {"critic/score/mean": 1.0})  # a step without validation
    with pytest.raises(PreflightError, match="val/progres"):
        check_logged("stage.gate.metric", "val/progress", {"val/progres": 1.0})


def test_a_resumed_stage_counts_the_steps_before_its_checkpoint_and_no_later_ones():
    steps = {step: {"m": float(step)} for step in range(1, 6)}
    assert values_until(steps, "m", 3) == [1.0, 2.0, 3.0]
    assert values_until(steps, "other", 3) == []
