"""Rewards: pure functions of an episode's record, in the form verl's `compute_score` has."""
