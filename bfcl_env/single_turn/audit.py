"""What an audit finds in these tasks, with reasons: where nothing should be called, an answer is all there is."""

from collections.abc import Mapping

from bfcl_env.single_turn.tasks import load_tasks

ANSWER_IS_RIGHT = "no function helps: to answer is right, and what the answer says is not judged"
NO_CALL_IS_ENOUGH = "BFCL asks only that no call can be read, so silence and junk pass officially"


def known() -> Mapping[str, str]:
    """What an audit finds; `*` stands for any reward."""
    listed = {}
    for task in load_tasks():
        if task.kind.wanted == "no call":
            listed[f"*, answers: {task.id}"] = ANSWER_IS_RIGHT
            for name in ("gold, cut", "nothing", "junk"):
                listed[f"outcome official, {name}: {task.id}"] = NO_CALL_IS_ENOUGH
    return listed
