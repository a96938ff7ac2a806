"""The stages of a run, one after another: `python -m recipe.curriculum` (docs/train.md)."""
