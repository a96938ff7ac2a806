"""The estimate against peaks of the real forward and backward passes, measured on fake tensors."""

import pytest

from benchmarks.bench_memory import Point, estimate, measure
from recipe.memory.terms import GB

MEASURED = [
    (Point("qwen2.5-7b", 32768, "fused", "update"), 35.87),
    (Point("qwen2.5-7b", 32768, "fused", "forward"), 18.13),
    (Point("qwen2.5-7b", 12000, "fused", "update"), 25.44),
    (Point("qwen3-4b", 32768, "fused", "update"), 23.37),
    (Point("qwen3-8b", 20480, "fused", "update", 4), 48.36),
    (Point("qwen2.5-1.5b", 12000, "fused", "update"), 7.98),
    (Point("qwen2.5-1.5b", 16384, "fused", "update", 8, 32), 5.67),
]
"""Points and GB, as `python -m benchmarks.bench_memory` printed them."""


@pytest.mark.parametrize(("point", "peak"), MEASURED)
def test_the_estimate_is_within_a_few_percent_of_what_was_measured(point, peak):
    assert estimate(point) / GB == pytest.approx(peak, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["fused", "packed"])
def test_what_was_measured_can_be_measured_again(path):
    point = Point("qwen2.5-1.5b", 1024, path, "update", 4)
    assert estimate(point) == pytest.approx(measure(point)[1], rel=0.15)
