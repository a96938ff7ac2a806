"""The GPU profiles' training: packed rows, attention that PyTorch ships, log-probabilities without logits.

verl loads `recipe.gpu.plugin` in training workers (`actor_rollout_ref.model.external_lib`). Nothing here needs a GPU
to be imported or tested: on a CPU the attention is one call of PyTorch's own for each sequence.
"""
