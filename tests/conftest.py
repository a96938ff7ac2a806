"""What holds for all tests: their order, their examples, and that none leaves an environment behind."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from interaction import environment

# How long an example takes says what else the machine does; and what fails a test is a change, not another example.
settings.register_profile("same examples", deadline=None, derandomize=True)
settings.load_profile("same examples")

os.environ.setdefault("HARDWARE", "tiny")  # the profile of the tiny policy, where a test names no other

LONGEST = ("test_training.py", "test_gym_env.py")
"""Files that take minutes. Two processes share the suite file by file: one that began last would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where processes share them puts the longest files first, and leaves the others as they are."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def environments_as_before() -> Iterator[None]:
    """Environments of one's own that are made known in here are forgotten after it, with all that was loaded."""
    before = dict(environment._files)
    yield
    if environment._files != before:
        environment._files.clear()
        environment._files.update(before)
        environment._module.cache_clear()
        environment.load_tasks.cache_clear()


own_environments_are_forgotten = pytest.fixture(autouse=True)(environments_as_before)
"""What a test has made known is unknown to the next."""
own_environments_of_a_file_are_forgotten = pytest.fixture(autouse=True, scope="module")(environments_as_before)
"""What a fixture for all tests of a file has made known is unknown to the next file."""
