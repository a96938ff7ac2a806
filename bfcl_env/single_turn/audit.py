"""What an audit finds in these tasks, with reasons: where nothing should be called, an answer is all there is."""

from collections.abc import Iterable, Iterator, Mapping

from bfcl_env.single_turn.checker import check_calls
from bfcl_env.single_turn.tasks import SingleTurnTask, failing_gold
from interaction.call import Call

ANSWER_IS_RIGHT = "no function helps: to answer is right, and what the answer says is not judged"
NO_CALL_IS_ENOUGH = "BFCL asks only that no call can be read, so silence and junk pass officially"
FIRST_TRIED = "the right call needs no arguments, or 1 for each, which is what anybody would try first"

OFFICIAL = ("outcome official", "outcome priced")
"""Rewards by BFCL's rule."""
SILENT = ("gold, cut", "nothing", "blanks", "foreign call", "junk", "hostile")
WITHOUT_WORK = (*SILENT, "answers", "safe call")


def known(tasks: Iterable[SingleTurnTask]) -> Mapping[str, str]:
    """What an audit finds in these tasks; `*` stands for any reward."""
    return {finding: reason for task in tasks for finding, reason in _of(task)}


def _of(task: SingleTurnTask) -> Iterator[tuple[str, str]]:
    if task.kind.wanted == "no call":
        for name in ("answers", "junk, hermes", "junk, llama3_json", "junk, python_calls"):  # any text answers in these
            yield f"*, {name}: {task.id}", ANSWER_IS_RIGHT
        yield from ((f"{reward}, {name}: {task.id}", NO_CALL_IS_ENOUGH) for reward in OFFICIAL for name in SILENT)
    elif task.id in failing_gold():
        reason = failing_gold()[task.id]
        yield from ((f"{reward}, {name}: {task.id}", reason) for reward in OFFICIAL for name in WITHOUT_WORK)
    elif len(task.accepted) == 1:
        name = next(iter(task.accepted[0]))
        document = next(item for item in task.functions if item["name"] == name)
        tried = Call(name, dict.fromkeys(document["parameters"].get("required", ()), 1))
        if check_calls([tried], task.functions, task.accepted, task.kind.language, parallel=task.kind.parallel).passed:
            yield f"*, safe call: {task.id}", FIRST_TRIED
