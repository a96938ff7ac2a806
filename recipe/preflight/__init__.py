"""Checks before any worker starts: each failure says what was given, what was expected and what to change."""
