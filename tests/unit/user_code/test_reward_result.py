"""Whatever a reward returns is a finite score with what verl can log, or one line that says what is wrong with it."""

import json
import math
from collections import OrderedDict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.metric_utils import process_validation_metrics

from recipe.stage.choosing import validation_metrics
from recipe.user_code.reward_result import RewardError, checked


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Odd(float):
    pass


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (1, 1.0),
        (-0.5, -0.5),
        (Odd(2.5), 2.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array(2.0), 2.0),
        (torch.tensor(0.25), 0.25),
        ({"score": 1}, 1.0),
        (True, 1.0),
        (False, 0.0),
        (np.bool_(True), 1.0),
        (torch.tensor(False), 0.0),
        ({"score": True}, 1.0),
        (OrderedDict(score=np.float16(0.5), note="x", n=np.int32(2)), 0.5),
        ({"score": 1.0, "loss": math.nan, "nothing": None, "flag": True}, 1.0),
    ],
    ids=repr,
)
def test_a_finite_number_is_a_score_whoever_made_it(result: Any, score: float) -> None:
    found = checked(result)
    number = found["score"] if isinstance(found, dict) else found
    assert type(number) is float and number == score
    if isinstance(found, dict):
        assert type(found) is dict and set(found) == set(result)
        assert all(type(value) in (int, float, bool, str, type(None)) for value in found.values())


@pytest.mark.parametrize(
    "result",
    [
        *(
            math.nan,
            math.inf,
            -math.inf,
            10**400,
            10**5000,
            np.float64("nan"),
            np.float32("inf"),
            torch.tensor(math.nan),
        ),
        *(
            None,
            "1.0",
            b"1",
            [],
            [1.0],
            (1.0, 2.0),
            {},
            1j,
            Fraction(1, 2),
            object(),
            Unprintable(),
        ),
        *(np.array([1.0, 2.0]), torch.ones(2), {"reward": 1.0}, {"Score": 1.0}),
        *({"score": bad} for bad in (math.nan, None, "x", 10**400, [1.0], {"score": 1.0})),
        *({"score": 1.0, **bad} for bad in ({"notes": ["a"]}, {"more": {"a": 1}}, {"big": 10**400}, {"a": object()})),
        *({"score": 1.0, **bad} for bad in ({3: 1.0}, {None: 1.0}, {("a",): 1.0}, {"it": Unprintable()})),
        {"score": 1.0, "turn_scores": [1.0]},
    ],
    ids=lambda result: str(type(result)),
)
def test_anything_else_is_refused_in_one_line(result: Any) -> None:
    with pytest.raises(RewardError) as error:
        checked(result)
    assert str(error.value).startswith("returned ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(10**400),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.just("score"), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)])
def test_a_metric_that_is_not_finite_is_in_no_mean(number: Any) -> None:
    first, second = checked({"score": 1.0, "price": number}), checked({"score": 1.0, "price": 2.0})
    assert isinstance(first, dict) and isinstance(second, dict) and first["price"] is None
    infos = {"score": [1.0, 1.0], "price": [first["price"], second["price"]]}
    assert validation_metrics(["bfcl/base"] * 2, infos) == {"val/score": 1.0, "val/price": 2.0}
    for prompts in (["a", "a"], ["a", "b"]):
        found = process_validation_metrics(["bfcl/base"] * 2, prompts, infos)["bfcl/base"]["price"]
        assert found["mean@1"] == 2.0


@given(VALUES)
def test_no_result_gets_through_that_is_not_finite_and_plain(result: Any) -> None:
    try:
        found = checked(result)
    except RewardError as error:
        assert "\n" not in str(error)
        return
    assert math.isfinite(found["score"] if isinstance(found, dict) else found)
    if isinstance(found, dict):
        found.pop("step_scores", None)
        json.dumps(found, allow_nan=False)
        assert all(isinstance(value, int | float | str | None) for value in found.values())
