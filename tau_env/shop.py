"""A domain in which only the agent has tools and states are compared: retail and airline.

All that is special about one is its functions and its database; what a task needs, whom it serves and whether doing
nothing passes it follow from gold in both.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any

from interaction.call import Call
from tau_env import arithmetic, task_files
from tau_env.attempt import Function, TableAttempt, load_functions
from tau_env.domain import PolicyKind, Side, Task
from tau_env.records import Base, Record
from tau_env.source import read

OWNED = {"order_id": "orders", "reservation_id": "reservations"}
"""Arguments that name a record of a user's, and its table."""


class Shop:
    """Fulfils `Domain`; nothing is read before it is asked for.

    Args:
        package: that has `functions.json`; its last name is the domain's.
        reads: the functions that change nothing, and `base`, the database in which every task begins.
        writes: the others; all that is public in it is a tool.
    """

    def __init__(self, package: str, reads: ModuleType, writes: ModuleType) -> None:
        self.NAME = package.rpartition(".")[2]
        self._package, self._modules = package, (arithmetic, reads, writes)
        self._base: Callable[[], Base] = reads.base
        own = (name for name, run in vars(writes).items() if getattr(run, "__module__", None) == writes.__name__)
        self.WRITES = frozenset(name for name in own if not name.startswith("_"))

    def load_tasks(self) -> tuple[Task, ...]:
        """All tasks, in the order of the file.

        Raises:
            SourceError: the file is missing or not the pinned one.
        """
        return self._tasks

    def functions(self, side: Side) -> tuple[Mapping[str, Any], ...]:
        """Documentation of the agent's functions; the user has none."""
        return tuple(function.doc for function in self._functions.values()) if side == "agent" else ()

    def policy(self, kind: PolicyKind, solo: bool) -> str:
        """The rules as the agent reads them: there is one text, and none for `none`.

        Raises:
            SourceError: the file is missing or not the pinned one.
        """
        return "" if kind == "none" else self._policy

    def base(self) -> Base:
        """The database, read once.

        Raises:
            SourceError: its file is missing or not the pinned one.
        """
        return self._base()

    def open(self, task: Task) -> TableAttempt:
        """The state in which every task begins. Raises as `base`."""
        return TableAttempt(self.base(), self._functions)

    def needed(self, task: Task) -> Iterable[tuple[Side, Call]]:
        """Gold's writes, in its order."""
        return ((action.side, action.call) for action in task.gold if action.call.name in self.WRITES)

    def idle(self, task: Task) -> bool:
        """Whether doing and saying nothing earns the reward. Such tasks are no use in training."""
        database = self.open(task)
        for action in task.gold:
            database.call(action.call, action.side)
        return not task.communicate and not database.changed()

    def user_of(self, task: Task) -> str:
        """The id of the user who is served, or nothing where neither gold nor the story tells.

        Gold's first call that leads to a user of the database decides; else an id in the user's story; else a name and
        a zip code in it. Tasks of one user share records, so they belong on one side of a split.
        """
        users = self.base().tables["users"]
        for action in task.gold:
            found = self._user_of_call(task, action.call)
            if found in users:
                return found
        story = " ".join((task.story.known, task.story.reason, task.story.instructions, task.story.unknown))
        ids = [user_id for user_id in users if user_id in story]
        return next(iter(ids or [user_id for user_id, user in users.items() if _is_told(user, story)]), "")

    def _user_of_call(self, task: Task, call: Call) -> str:
        if call.name.startswith("find_user_id"):
            return self.open(task).call(call, "agent").text
        for argument, table in OWNED.items():
            record = self.base().tables.get(table, {}).get(call.arguments.get(argument, ""))
            if record is not None:
                return str(record["user_id"])
        return str(call.arguments.get("user_id", ""))

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        return task_files.load_tasks(self.NAME)

    @cached_property
    def _functions(self) -> Mapping[str, Function]:
        return load_functions(self._package, "functions.json", *self._modules)

    @cached_property
    def _policy(self) -> str:
        return read(f"domains/{self.NAME}/policy.txt").decode()


def _is_told(user: Record, story: str) -> bool:
    name = f"{user['name']['first_name']} {user['name']['last_name']}"
    return name in story and user["address"]["zip"] in story
