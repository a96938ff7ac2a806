"""Gates: when a stage is left, when it has failed, and what a gate may not say."""

from math import nan

import pytest

from recipe.files import PreflightError
from recipe.stage.gates import Gate, check_logged, values_until

PLATEAU = {"kind": "plateau", "value": None, "window": 1, "patience": 3, "min_delta": 0.01}
RISING, FLAT = [0.1, 0.2, 0.3], [0.3, 0.305, 0.29]


def gate(**settings) -> Gate:
    found = Gate.parse({"kind": "leave_at", "value": 1.8, "window": 3, **settings})
    assert found is not None
    return found


def test_a_stage_is_left_at_its_value_or_on_its_plateau() -> None:
    for settings, values, leaves in (
        ({}, [1.0, 2.0, 2.0], False),
        ({}, [1.0, 1.9, 1.7, 1.8], True),
        ({}, [2.0, 2.0], False),
        (PLATEAU, RISING + FLAT[:2], False),
        (PLATEAU, RISING + FLAT, True),
        (PLATEAU, [*RISING, *FLAT, 0.4], False),
        ({**PLATEAU, "value": 0.5}, [0.1] * 20, False),
        ({**PLATEAU, "value": 0.5}, [0.6] * 20, True),
        ({"kind": "minimum", "value": 0.5}, [1.0] * 10, False),
        (PLATEAU, [nan] * 20, False),
        (PLATEAU, [nan, 0.2, *FLAT, 0.3], True),
        ({}, [2.0, nan, 2.0], False),
    ):
        assert (gate(**settings).reason_to_leave(values) is not None) is leaves, (settings, values)


def test_a_stage_passes_by_the_mean_of_its_last_values_and_stops_where_that_is_asked_for() -> None:
    minimum = gate(kind="minimum", value=0.5)
    assert minimum.judge([0.4, 0.5, 0.6])[0] and not minimum.judge([0.4, 0.4, 0.4])[0] and not minimum.judge([2.0])[0]
    assert not gate(**PLATEAU | {"value": 0.5}).judge([0.1] * 20)[0] and not gate().judge([1.0] * 5)[0]
    assert not any(
        gate(**one).judge([2.0, nan])[0] for one in (PLATEAU, {"kind": "minimum", "window": 1}, {"window": 2})
    )
    assert minimum.stops and gate(required=True).stops and not gate().stops


def test_a_gate_that_cannot_work_says_what_to_change() -> None:
    for message, setting in {
        "stage.gate.kind='leave'": {"kind": "leave"},
        "stage.gate.value": {"kind": "minimum", "value": None},
        "stage.gate.windw is not known": {"kind": "minimum", "value": 1, "windw": 2},
        "stage.gate.window=0": {"kind": "plateau", "window": 0},
    }.items():
        with pytest.raises(PreflightError, match=message):
            Gate.parse(setting)
    with pytest.raises(PreflightError, match="critic/score/mean"):
        check_logged("stage.gate.metric", "critic/scores/mean", {"critic/score/mean": 1.0})
    check_logged("stage.gate.metric", "val/progress", {"critic/score/mean": 1.0})  # a step without validation


def test_a_resumed_stage_counts_the_steps_before_its_checkpoint_and_no_later_ones() -> None:
    steps = {step: {"m": float(step)} for step in range(1, 6)}
    assert (values_until(steps, "m", 3), values_until(steps, "other", 3)) == ([1.0, 2.0, 3.0], [])
