"""The stages of a run, one after another: `python -m recipe.curriculum` (docs/train.md)."""

from recipe.settings import compose as compose_stage

__all__ = ["compose_stage"]
