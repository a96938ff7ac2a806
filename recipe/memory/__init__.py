"""How much memory a run takes on a GPU, on the host and on the disk, from configurations alone: docs/memory.md.

`architecture` reads a model's config.json, `settings` what the run is asked to do, `terms` holds the formula, `advice`
looks for values that fit, `table` writes it all down, and `check` is what preflight calls. Nothing here imports torch.
"""
