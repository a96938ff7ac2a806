"""Training: what a user starts. Importing this package imports nothing heavy."""
