"""The GPU profiles' training: packed rows, attention that PyTorch ships, log-probabilities without logits.

On a CPU too, the trainer's distribution is that over the tokenizer's ids (`vocabulary`).
"""
