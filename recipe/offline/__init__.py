"""Stored trajectories, read to be trained on: files in, token ids with masks, steps and rewards out.

`files` finds them, `rollouts` and `steptool` read the two forms, `limits` says what fits, `survey` goes over all of
them before a start and says what is wrong with them. Nothing here imports torch or verl; `recipe.training.offline` puts
what is read where verl's trainer looks for what was played. docs/offline.md is for users.
"""
