"""What one stage is on the disk: start, checkpoints, notes, metrics, end, and the model it hands on."""
