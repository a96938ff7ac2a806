"""The split: what resembles each other stands on one side, and every category on all sides."""

import json
import re
from collections import Counter, defaultdict

from bfcl_env.single_turn.components import SHARES, components, parts
from interaction.environment import load_tasks

TASKS = load_tasks("bfcl_single")


def test_no_question_and_no_function_stands_on_two_sides():
    sides = defaultdict(set)
    for task in TASKS.values():
        sides[re.sub(r"\W+", "", task.messages[-1]["content"].casefold())].add(task.part)
        for function in task.functions:
            sides[function["name"], json.dumps(function["parameters"], sort_keys=True)].add(task.part)
    assert {len(found) for found in sides.values()} == {1}


def test_no_component_stands_on_two_sides():
    sides = defaultdict(set)
    for task in TASKS.values():
        sides[task.cluster].add(task.part)
    assert len(sides) == 1402 and {len(found) for found in sides.values()} == {1}
    assert Counter(task.cluster for task in TASKS.values()).most_common(1)[0][1] == 319


def test_every_category_has_its_share_of_every_part():
    of_category = defaultdict(Counter)
    for task in TASKS.values():
        of_category[task.category][task.part] += 1
    for category, found in of_category.items():
        for part, share in SHARES.items():
            assert abs(found[part] - share * found.total()) <= 1.5, (category, part, found)


def entry(name, question, *functions):
    return {
        "id": name,
        "question": [[{"role": "user", "content": question}]],
        "function": [{"name": item, "parameters": {"type": "dict", "properties": {}}} for item in functions],
    }


def test_tasks_are_joined_through_others_and_by_questions_that_differ_in_punctuation_only():
    found = components(
        [
            entry("a", "Add 1 and 2.", "add"),
            entry("b", "Something else", "add", "sub"),
            entry("c", "Third", "sub"),
            entry("d", "add 1, and 2", "mul"),
            entry("e", "Alone", "div"),
        ]
    )
    assert found == {"a": "a", "b": "a", "c": "a", "d": "a", "e": "e"}


def test_a_name_that_is_shared_joins_nothing():
    one, other = entry("a", "One", "search"), entry("b", "Two", "search")
    other["function"][0]["parameters"]["properties"] = {"query": {"type": "string"}}
    assert components([one, other]) == {"a": "a", "b": "b"}


def test_what_must_not_be_trained_on_takes_its_whole_component_with_it():
    names = [f"{number}" for number in range(40)]
    clusters = {name: name if int(name) >= 4 else "0" for name in names}
    categories = dict.fromkeys(names, "simple")
    assert parts(categories, clusters, [])["0"] == "train"  # the largest is placed first
    found = parts(categories, clusters, ["3"])
    assert found["0"] != "train"
    sizes = Counter(found[cluster] for cluster in clusters.values())
    assert sizes["train"] == 20 and found == parts(categories, clusters, ["3"])
