"""The tasks: all there, as BFCL has them, unchangeable, with gold that passes in whatever protocol can write it."""

import json
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest

from bfcl_env import source
from bfcl_env.single_turn import data_files
from bfcl_env.single_turn.categories import CATEGORIES
from bfcl_env.single_turn.tasks import failing_gold
from interaction import get_protocol
from interaction.environment import load_tasks
from interaction.gold import play_gold, unwritable
from interaction.protocol import PROTOCOLS

TASKS = load_tasks("bfcl_single")
WITHOUT_GOLD = {
    "live_simple_106-63-0",
    "live_simple_112-68-0",
    "live_multiple_862-181-3",
    "live_multiple_964-207-0",
}
"""Their data accepts what their functions do not take; beside them, those of live_relevance have none."""


def test_there_are_as_many_tasks_of_each_category_as_the_leaderboard_scores():
    assert Counter(task.category for task in TASKS.values()) == {
        "simple_python": 400,
        "simple_java": 100,
        "simple_javascript": 50,
        "multiple": 200,
        "parallel": 200,
        "parallel_multiple": 200,
        "irrelevance": 240,
        "live_simple": 258,
        "live_multiple": 1053,
        "live_parallel": 16,
        "live_parallel_multiple": 24,
        "live_irrelevance": 884,
        "live_relevance": 16,
    }


def test_every_entry_stands_beside_its_own_answer():
    for task in TASKS.values():
        assert json.loads(task.entry_json)["id"] == task.id
        wanted = CATEGORIES[task.category].wanted
        assert bool(task.answer_json) == (wanted == "accepted")
        assert not task.answer_json or json.loads(task.answer_json)["id"] == task.id
        assert len(json.loads(task.entry_json)["question"]) == 1, "one turn"


def test_other_data_than_the_pinned_are_refused_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(data_files, "DATA_SHA256", "0" * 64)
    with pytest.raises(source.SourceError, match=r"bfcl-eval==2026\.3\.23"):
        data_files.read_categories()


def test_nobody_can_change_a_task():
    task = TASKS["multiple_0"]
    with pytest.raises(FrozenInstanceError):
        task.part = "train"
    for read in (lambda: task.functions, lambda: task.accepted, lambda: task.messages):
        read()[0].clear()
        assert read()[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_gold_passes_in_every_category_that_a_protocol_can_write(protocol):
    """Rendered, parsed back, judged; the table of what cannot be written is this test's."""
    format_, cannot, without = get_protocol(protocol), set(), set()
    for task in TASKS.values():
        if not any(True for _ in task.gold()):
            without.add(task.id)
        elif unwritable(task, format_) is not None:
            cannot.add(task.id)
        else:
            _, record = play_gold(task, format_)
            assert record.outcome.passed, task.id
    assert {name for name in without if TASKS[name].category != "live_relevance"} == WITHOUT_GOLD
    assert cannot == ({"simple_java_62", "simple_java_63"} if protocol == "python_calls" else set())


def test_tasks_whose_gold_the_leaderboards_checker_fails_are_listed_and_not_trained_on():
    failing = set()
    for task in TASKS.values():
        if task.kind.wanted == "accepted":
            _, record = play_gold(task, get_protocol("think_xml"))  # without gold: nothing, which passes nowhere
            if not record.turns[0].facts["passed_official"]:
                failing.add(task.id)
    assert failing == failing_gold().keys() and len(failing) == 15
    assert not [name for name in failing if TASKS[name].part == "train"]
