"""Episodes of several environments in one summary: two of them may have the same ids, clusters and categories."""

import pytest
from support.own_environment import write_namesake

from interaction import get_protocol
from interaction.environment import load_tasks, register
from recipe.evaluation.summary import Judged, results, text
from recipe.tools.policies import POLICIES, play

PROTOCOL = get_protocol("think_xml", docs="signature")


def judged(task, policy):
    return Judged(play(task, PROTOCOL, POLICIES[policy]), None)


@pytest.mark.parametrize("category", ["move", "multi_turn_base"])
def test_tasks_of_two_environments_with_one_id_are_two(category, tmp_path):
    bfcl = [task for task in load_tasks().values() if task.category == "multi_turn_base"][:8]
    register({"inventory": str(write_namesake(tmp_path, bfcl, category))})
    pairs = [(task, "gold") for task in bfcl] + [(task, "nothing") for task in load_tasks("inventory").values()]
    found = results([judged(task, policy) for task, policy in pairs for _ in range(2)], [], 2)
    names = ["bfcl/multi_turn_base", "inventory/multi_turn_base"] if category != "move" else ["multi_turn_base", "move"]
    assert [*found["categories"]] == names
    assert [group["acc"]["mean"] for group in found["categories"].values()] == [1.0, 0.0]
    assert found["overall"]["tasks"] == 16
    assert found["overall"]["pass_at_k"]["acc"] == {"1": 0.5, "2": 0.5}
    acc = found["overall"]["acc"]
    assert acc["high"] - acc["low"] > 0.3, "16 clusters, 8 of which pass"
    assert "overall" not in text(found) and names[0].removeprefix("multi_turn_") in text(found)
