"""The order of all tests."""

import pytest

LONGEST = ("test_training.py", "test_fault_matrix.py", "test_gym_env.py")
"""Files that take minutes. Two processes share the suite file by file: one that began last would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, and leaves the others as they are."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
