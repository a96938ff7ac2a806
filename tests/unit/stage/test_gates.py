"""Gates: when a stage is left, when it has failed, and what a gate may not say."""

from math import nan
from statistics import fmean

import pytest

from recipe.files import PreflightError, read
from recipe.stage.gates import Gate, check_logged

PLATEAU = {"kind": "plateau", "value": None, "window": 1, "patience": 3, "min_delta": 0.01}
OVER, MINIMUM = PLATEAU | {"value": 0.5}, {"kind": "minimum", "value": 0.5}
RISING, FLAT = [0.1, 0.2, 0.3], [0.3, 0.305, 0.29]


def gate(**settings):
    return read(Gate, {"kind": "leave_at", "value": 1.8, "window": 3, **settings}, "stage.gate")


def test_a_stage_is_left_at_its_value_or_on_its_plateau() -> None:
    left = [({}, [1.0] * 3 + [1.9, 1.7, 1.8]), (PLATEAU, RISING + FLAT), (PLATEAU, [nan, 0.2, *FLAT, 0.3])]
    left += [(PLATEAU, [-0.3] * 4), (OVER, [0.6] * 20), ({**PLATEAU, "min_delta": 0.25}, [0.0, 0.25, 0.25, 0.25])]
    left += [({**PLATEAU, "min_delta": 0, "patience": 1}, [0.3, 0.3])]
    stays = [({}, [1.0, 2.0, 2.0]), ({}, [2.0, 2.0]), ({}, [2.0, nan, 2.0]), (PLATEAU, RISING + FLAT[:2])]
    stays += [(PLATEAU, [*RISING, *FLAT, 0.4]), (PLATEAU, [nan] * 20), (OVER, [0.1] * 20), (MINIMUM, [1.0] * 30)]
    stays += [(PLATEAU, [-0.3, -0.2, -0.1])]
    for settings, values in [*left, *stays]:
        reason = gate(**settings).reason_to_leave(values)
        assert (reason is not None) is ((settings, values) in left), (settings, values)
        assert reason is None or f" {fmean(values[-gate(**settings).window :]):.3f} " in reason, "the last mean"
    assert Gate("plateau") == Gate("plateau", "critic/score/mean", None, 5, 20, 0.01, False)


def test_a_stage_passes_by_the_mean_of_its_last_values_and_stops_where_that_is_asked_for() -> None:
    passed = [(MINIMUM, [0.4, 0.5, 0.6]), (PLATEAU, [0.1]), (PLATEAU, [])]
    failed = [(MINIMUM, [0.4, 0.4, 0.4]), (MINIMUM, [2.0]), ({}, [1.0] * 5), (OVER, []), (OVER, [0.1] * 20)]
    failed += [({**MINIMUM, "window": 1}, [2.0, nan]), ({"window": 2}, [2.0, nan]), (PLATEAU, [2.0, nan])]
    for settings, values in [*passed, *failed]:
        assert gate(**settings).judge(values)[0] is ((settings, values) in passed), (settings, values)
    assert "0.500, " in gate(**MINIMUM).judge([0.1, 0.9, 0.4, 0.5, 0.6])[1], "the last mean"
    assert gate(**MINIMUM).stops and gate(required=True).stops and not gate().stops and not gate(**PLATEAU).stops


def test_a_gate_that_cannot_work_says_what_to_change() -> None:
    for message, setting in {
        "stage.gate.value": {"kind": "minimum", "value": None},
        "stage.gate.windw is not known": {"kind": "minimum", "value": 1, "windw": 2},
        "stage.gate.kind is missing": {"value": 1},
        "stage.gate.window=0": {"kind": "plateau", "window": 0},
        "stage.gate.patience=0": {"kind": "plateau", "patience": 0},
        "stage.gate.min_delta=-0.5": {"kind": "plateau", "min_delta": -0.5},
    }.items():
        with pytest.raises(PreflightError, match=message):
            read(Gate, setting, "stage.gate")
    logged = {f"critic/score/{name}": 1.0 for name in ("mean", "max", "min", "media")}
    with pytest.raises(PreflightError) as said:
        check_logged("stage.gate.metric", "critic/scores/mean", logged)
    assert str(said.value).count("critic/score/") == 3 and "critic/score/mean" in str(said.value)
    for metric in ("val/progress", "critic/score/mean"):  # the first one in a step without validation
        check_logged("stage.gate.metric", metric, logged)
    check_logged("stage.gate.metric", "critic/scores/mean", {"val/progress": 1.0})
