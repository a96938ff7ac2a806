"""The GPU profiles' training: packed rows, attention that PyTorch ships, log-probabilities without logits."""
