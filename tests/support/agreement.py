"""Whether a step's engine and trainer computed the same probabilities."""

from collections.abc import Mapping

from recipe.report.tables import CORRELATION


def engine_agrees(numbers: Mapping[str, float]) -> bool:
    """By verl's correlation where the step was measured, else by what the update found of the engine's."""
    if CORRELATION in numbers:
        return numbers[CORRELATION] > 0.99
    return abs(numbers["actor/ppo_kl"]) < 1e-4 and numbers["actor/pg_clipfrac"] == 0
