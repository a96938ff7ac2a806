"""Rows whose calls the protocol cannot write are refused, with the protocols that can."""

import pytest

from interaction import get_protocol
from interaction.environment import load_tasks
from interaction.protocol import PROTOCOLS
from recipe.preflight.writing import cannot_write

TASKS = load_tasks("bfcl_single")


def test_a_task_that_cannot_be_written_is_refused_with_the_protocols_that_can():
    line = cannot_write(TASKS["simple_java_62"], get_protocol("python_calls"))
    assert "interaction.protocol=python_calls" in line and "'from'" in line and "simple_java_62" in line
    assert "set it to one that can: think_xml, hermes, llama3_json" in line


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_each_category_a_task_can_be_written_in_every_protocol(protocol):
    for category in dict.fromkeys(task.category for task in TASKS.values()):
        task = next(task for task in TASKS.values() if task.category == category)
        assert cannot_write(task, get_protocol(protocol)) is None


def test_tasks_without_gold_are_not_in_the_way():
    assert cannot_write(TASKS["live_relevance_0-0-0"], get_protocol("python_calls")) is None
