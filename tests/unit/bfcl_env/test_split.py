"""The parts of the split: training, choosing and reporting share no task, and each is drawn as stated."""

import json
import random

import pytest

from bfcl_env import CATEGORIES, choose_indices, load_scenarios, part_of, report_indices, train_indices

PARTS = ("train", "choose", "report")
ALIKE = {66: 70, 40: 43}
"""Held-out task -> the training task it resembles: the same parked car, the same first request."""


def indices(category, split):
    return {item.index for item in load_scenarios(category, split=split)}


@pytest.mark.parametrize("category", CATEGORIES)
def test_training_choosing_and_reporting_share_no_index_and_miss_none(category):
    parts = {part: indices(category, part) for part in PARTS}
    assert {part: len(found) for part, found in parts.items()} == {"train": 100, "choose": 25, "report": 75}
    assert parts["train"] | parts["choose"] | parts["report"] == set(range(200))
    assert parts["choose"] | parts["report"] == indices(category, "val")


def test_the_same_part_in_every_category_as_the_names_say():
    named = {"train": train_indices(), "choose": choose_indices(), "report": report_indices()}
    for part, found in named.items():
        assert {part_of(index) for index in found} == {part}
        assert all(indices(category, part) == set(found) for category in CATEGORIES)


def test_the_choosing_part_is_drawn_by_the_stated_rule():
    rest = sorted(set(range(200)) - set(train_indices()) - set(ALIKE))
    random.Random(1).shuffle(rest)
    assert choose_indices() == (40, 66, *rest[:23])


def test_a_held_out_task_that_resembles_a_training_task_is_never_reported():
    assert {part_of(index) for index in ALIKE} == {"choose"}
    assert {part_of(index) for index in ALIKE.values()} == {"train"}
    configs, requests = {}, {}
    for item in load_scenarios():
        configs.setdefault(json.dumps(item.initial_config, sort_keys=True), set()).add(item.index)
        if item.turns[0].user:
            requests.setdefault(item.turns[0].user, set()).add(item.index)
    for same in (*configs.values(), *requests.values()):
        assert len({part_of(index) for index in same}) == 1 or {part_of(index) for index in same} == {"train", "choose"}


@pytest.mark.parametrize("index", [-1, 200, 10**9])
def test_an_index_that_no_task_has_is_in_no_part(index):
    with pytest.raises(ValueError, match="0 to 199"):
        part_of(index)


def test_an_unknown_part_is_refused_with_the_known_ones_listed():
    with pytest.raises(ValueError, match="'train', 'val', 'choose', 'report'"):
        load_scenarios(split="test")
