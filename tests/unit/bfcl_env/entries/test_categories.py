"""What an id says: every spelling that BFCL's releases and users' files have."""

import pytest

from bfcl_env.entries.categories import CATEGORIES, category_of, is_multi_turn, language_of
from bfcl_env.entries.single_turn import kind_of
from bfcl_env.single_turn.categories import CATEGORIES as BFCL
from bfcl_env.single_turn.tasks import load_tasks
from bfcl_env.source import CATEGORIES as MULTI_TURN
from bfcl_env.source import read_rows

SPELLINGS = {
    "multi_turn_0": "multi_turn_base",
    "multi-turn_0": "multi_turn_base",
    "multi_turn_base_grinder": "multi_turn_base",
    "multi-turn_python_3": "multi_turn_base",
    "multi_turn_base_199": "multi_turn_base",
    "multi-turn_base_1": "multi_turn_base",
    "Multi_Turn_Base_1": "multi_turn_base",
    "multi_turn_miss_func_4": "multi_turn_miss_func",
    "multi-turn-miss-func_4": "multi_turn_miss_func",
    "multi_turn_miss_param_4": "multi_turn_miss_param",
    "multi_turn_long_context_4": "multi_turn_long_context",
    "simple_0": "simple_python",
    "python_0": "simple_python",
    "simple_python_0": "simple_python",
    "java_0": "simple_java",
    "simple_java_0": "simple_java",
    "javascript_0": "simple_javascript",
    "simple_javascript_0": "simple_javascript",
    "multiple_0": "multiple",
    "multiple_python_0": "multiple",
    "multiple_java_0": "multiple_java",
    "multiple_javascript_0": "multiple_javascript",
    "parallel_0": "parallel",
    "parallel_python_0": "parallel",
    "parallel_java_0": "parallel_java",
    "parallel_javascript_0": "parallel_javascript",
    "parallel_multiple_0": "parallel_multiple",
    "parallel-multiple_0": "parallel_multiple",
    "parallel_multiple_python_0": "parallel_multiple",
    "parallel_multiple_java_0": "parallel_multiple_java",
    "parallel_multiple_javascript_0": "parallel_multiple_javascript",
    "irrelevance_0": "irrelevance",
    "relevance_0": "relevance",
    "live_simple_0-0-0": "live_simple",
    "live_multiple_1052-279-0": "live_multiple",
    "live_parallel_0-0-0": "live_parallel",
    "live_parallel_multiple_0-0-0": "live_parallel_multiple",
    "live_irrelevance_0-0-0": "live_irrelevance",
    "live_relevance_0-0-0": "live_relevance",
}


@pytest.mark.parametrize("entry_id", SPELLINGS)
def test_a_spelling_names_its_category(entry_id: str) -> None:
    assert category_of(entry_id) == SPELLINGS[entry_id]


def test_every_spelling_of_the_table_is_tried() -> None:
    tried = {entry_id.rpartition("_")[0].lower().replace("-", "_") for entry_id in SPELLINGS}
    assert tried == CATEGORIES.keys()


def test_bfcls_own_ids_name_their_categories() -> None:
    for category in MULTI_TURN:
        assert {category_of(row["id"]) for row in read_rows(f"BFCL_v4_{category}.json")} == {category}
    assert all(category_of(task.id) == task.category for task in load_tasks())


@pytest.mark.parametrize("category", sorted({*CATEGORIES.values()}))
def test_a_category_has_the_language_and_the_number_of_calls_that_it_names(category: str) -> None:
    if is_multi_turn(category):
        assert category in MULTI_TURN
        return
    kind = kind_of(category)
    assert kind.language == language_of(category)
    assert kind.parallel == ("parallel" in category)
    assert kind.wanted == {"irrelevance": "no call", "relevance": "any call"}.get(
        category.removeprefix("live_"), "accepted"
    )
    if category in BFCL:
        assert kind == BFCL[category]
