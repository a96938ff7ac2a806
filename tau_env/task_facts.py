"""What can be told beforehand of a task on tables of records: whom it serves, what it needs, whether idling passes."""

from collections.abc import Callable, Collection, Iterator

from interaction.call import Call
from tau_env.domain import Database, Side, Task
from tau_env.records import Base, Record

OWNED = {"order_id": "orders", "reservation_id": "reservations"}
"""Arguments that name a record of a user's, and its table."""


def needed_writes(task: Task, writes: Collection[str]) -> Iterator[tuple[Side, Call]]:
    """Gold's calls of functions that can change something."""
    return ((action.side, action.call) for action in task.gold if action.call.name in writes)


def nothing_passes(task: Task, database: Database) -> bool:
    """Whether an agent that does and says nothing earns the reward: gold changes nothing, and nothing is to be said.

    `database` is the task's beginning; gold is played on it.
    """
    if task.communicate:
        return False
    before = database.digest()
    for action in task.gold:
        database.call(action.call, action.side)
    return database.digest() == before


def user_served(task: Task, base: Base, ask: Callable[[Call], str]) -> str:
    """The id of the user who is served, or nothing where neither gold nor the story tells.

    Gold's first call that leads to a user of the database decides; else an id in the user's story; else a name and a
    zip code in it. `ask` gives a call's text on the state in which the task begins.
    """
    users = base.tables["users"]
    for action in task.gold:
        found = _user_of_call(action.call, base, ask)
        if found in users:
            return found
    story = " ".join((task.story.known, task.story.reason, task.story.instructions, task.story.unknown))
    ids = [user_id for user_id in users if user_id in story]
    return next(iter(ids or [user_id for user_id, user in users.items() if _is_told(user, story)]), "")


def _user_of_call(call: Call, base: Base, ask: Callable[[Call], str]) -> str:
    if call.name.startswith("find_user_id"):
        return ask(call)
    for argument, table in OWNED.items():
        record = base.tables.get(table, {}).get(call.arguments.get(argument, ""))
        if record is not None:
            return str(record["user_id"])
    return str(call.arguments.get("user_id", ""))


def _is_told(user: Record, story: str) -> bool:
    name = f"{user['name']['first_name']} {user['name']['last_name']}"
    return name in story and user["address"]["zip"] in story
