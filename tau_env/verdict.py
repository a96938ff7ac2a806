"""The official reward of a played episode, and which writes its task did not need, which that reward lets pass.

The reward is the product of the parts that a task's basis names, each 0 or 1, as tau2-bench at the tasks' revision has
it. Where the copy in inspect-evals differs, its choice is said:

- DB: the final state equals that of gold, played on a fresh database, calls that fail included. inspect-evals compares
  it for retail and airline whatever the basis says, which is DB there anyway.
- COMMUNICATE: each text stands in one message of the agent, case folded and commas removed from the message (so a text
  that has a comma itself is never found). Officially words beside a call count, though no user hears them; our own
  verdict, as inspect-evals, counts messages to the user alone. Officially "10" stands in "#W4104000", and "IL" in
  "will"; our own verdict wants the number, or the words, as a whole (`is_heard`).
- ENV_ASSERTION: all of the task's assertions hold. inspect-evals asks them whatever the basis says.
- ACTION: each call of gold was made by whomever, failed or not; only the arguments that the task names are compared,
  and all of them where it names none. There tau2-bench compares only those that were given, so that a call without any
  would pass; inspect-evals compares all of them, lists without their order. Here they must be equal. The only action
  that any task's basis asks for is a transfer, by name.
- NL_ASSERTION takes a language model as a judge: refused.

An episode that was ended from outside (too many steps or errors) is worth 0 whatever stands here.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from interaction.call import Call
from tau_env.domain import Action, Database, Domain, Side, Task, Write
from tau_env.exchange import HAND_OVER

RECORD = ("order_id", "reservation_id", "user_id")
"""Arguments that say what a write is about, the narrowest first."""
_KNOWN = frozenset({"DB", "COMMUNICATE", "ENV_ASSERTION", "ACTION"})

_gold_digests: dict[int, tuple[Task, str]] = {}
"""Of each task's state after gold, by the task's identity; a digest only, since a state is kilobytes."""


def judge(
    domain: Domain, task: Task, database: Database, calls: Iterable[tuple[Side, Call]], said: Sequence[str]
) -> dict[str, float]:
    """The components that the task's basis names ("db", "communicate", "env_assertion", "action"), each 0.0 or 1.0.

    Args:
        database: the state at the end of the episode.
        calls: all that were made, in any order, failed ones as well.
        said: the agent's words that count: its messages to its user, officially those beside calls as well.

    Raises:
        ValueError: the basis names a part that cannot be judged here.
    """
    if unknown := sorted(set(task.basis) - _KNOWN):
        raise ValueError(f"task {task.number} of {task.domain}: {', '.join(unknown)} cannot be judged here")
    components = {}
    if "DB" in task.basis:
        components["db"] = float(database.digest() == gold_digest(domain, task))
    if "COMMUNICATE" in task.basis:
        components["communicate"] = float(all(is_said(text, said) for text in task.communicate))
    if "ENV_ASSERTION" in task.basis:
        components["env_assertion"] = float(all(database.holds(each) for each in task.assertions))
    if "ACTION" in task.basis:
        made = [call for _, call in calls]
        components["action"] = float(all(any(is_made(each, call) for call in made) for each in task.gold))
    return components


def gold_digest(domain: Domain, task: Task) -> str:
    """The digest of the state after gold; played once for each task."""
    if id(task) not in _gold_digests:
        _gold_digests[id(task)] = task, gold_state(domain, task).digest()
    return _gold_digests[id(task)][1]


def gold_state(domain: Domain, task: Task) -> Database:
    """A fresh state after gold's calls."""
    database = domain.open(task)
    for action in task.gold:
        database.call(action.call, action.side)
    return database


def is_said(text: str, said: Sequence[str]) -> bool:
    """Whether one of the messages has the text, case folded and without the messages' commas."""
    wanted = text.lower()
    return any(wanted in message.lower().replace(",", "") for message in said)


def is_heard(text: str, said: Sequence[str]) -> bool:
    """Whether one of the messages has the text for itself, not within another one.

    A number is heard as its value: "$1,234.50" in "1234.5", "+1234.50 USD" and "**1,234.50**". It is not heard with
    another sign, as part of a decimal (10.5), a range, a date, a time or a fraction, nor with letters, a plus or a
    percent sign behind it ("#W10", "10GB", "10+", "10%"). Only digits count, not "ten"; 010 is not 10, since a code may
    begin with 0. Other texts are looked for as whole words, case folded and without commas.
    """
    if (wanted := _number(text)) is not None:
        return any(wanted == _number(token) for message in said for token in _TOKEN.findall(message))
    whole = rf"(?<!\w){re.escape(text.lower().replace(',', ''))}(?!\w)"
    return any(re.search(whole, message.lower().replace(",", "")) for message in said)


_SIGNS = "\N{MINUS SIGN}\N{EN DASH}+-"
_TOKEN = re.compile(rf"(?:[\w.#%$€£¥{_SIGNS}]|(?<=\d)[,:/](?=\d))+")
"""Letters, digits and what joins them to something else than a number."""
_NUMBER = re.compile(rf"([{_SIGNS}]?)(?:USD?)?[$€£¥]?([{_SIGNS}]?)(?:USD)?(\d*)(?:\.(\d+))?(?:USD|[$€£¥])?", re.ASCII)


def _number(token: str) -> tuple[bool, str, str] | None:
    """Whether it is negative, its digits, and its decimals without zeros at the end; None for what is no number."""
    found = _NUMBER.fullmatch(token.replace(",", "").strip("_#").rstrip(".-\N{EN DASH}"))
    if found is None or not (found[3] or found[4]):
        return None
    return any(sign not in ("", "+") for sign in found.group(1, 2)), found[3] or "0", (found[4] or "").rstrip("0")


def is_made(action: Action, call: Call) -> bool:
    """Whether a call is the one that gold has, by the arguments that count. Sides have no name in common."""
    if call.name != action.call.name:
        return False
    if action.compare is None:
        return call.arguments == action.call.arguments
    wanted = action.call.arguments
    return all(call.arguments.get(name) == wanted.get(name) for name in action.compare)


def needless(domain: Domain, task: Task, written: Sequence[Write]) -> tuple[Write, ...]:
    """The writes beyond those that the task needs, in order: each of these counts as often as it is listed.

    A write is a needed one if it is the same function for the same order, reservation or user: where the state ends as
    gold's, its other arguments have said the same, in whatever form. A domain that knows better (telecom, whose tasks
    do not compare states) says so with a function of its own.
    """
    if (own := getattr(domain, "needless", None)) is not None:
        found: tuple[Write, ...] = own(task, written)
        return found
    left = [_about(write) for write in domain.needed(task)]
    beyond = []
    for write in written:
        if (about := _about(write)) in left:
            left.remove(about)
        else:
            beyond.append(write)
    return tuple(beyond)


def hands_over(task: Task) -> bool:
    """Whether the task is one that ends with a transfer: then that is needed, and everywhere else it is not."""
    return bool(task.gold) and task.gold[-1].call.name == HAND_OVER


def _about(write: Write) -> tuple[Any, ...]:
    side, call = write
    record = next((call.arguments[name] for name in RECORD if name in call.arguments), None)
    return side, call.name, repr(record)
