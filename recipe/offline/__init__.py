"""Learning from what is stored: trajectories in place of rollouts, and conversations of the warm start."""
