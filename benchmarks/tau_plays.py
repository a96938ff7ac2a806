"""Plays of telecom: random calls (sensible, nearly so, and nonsense), and ways to play that a reward should tell apart.

A play is a list of calls with their sides. Strategies look at nothing but the texts that they get.
"""

import contextlib
import random
import string
from collections.abc import Callable, Generator
from typing import Any

from interaction.call import Call
from interaction.outcome import ToolResult
from tau_env import telecom
from tau_env.audit import FIXES, TOGGLES, TRANSFER
from tau_env.domain import Database, Side, Task

Move = tuple[Side, Call]

SIDES: tuple[Side, Side] = ("agent", "user")
_IDS = {
    "customer_id": ["C1001"] * 6 + ["C1002", "C1003", "C1004"],
    "line_id": ["L1002"] * 6 + [f"L100{n}" for n in range(1, 10)],
    "bill_id": ["B1234321"] * 4 + [f"B100{n}" for n in range(1, 7)] + ["B8b877ca6"],
    "id": ["C1001", "L1002", "L1004", "D1002", "D1009", "B1002", "B1003", "B1234321", "P1002", "P1005", "C1004"],
    "phone_number": ["555-123-2002", "555-123-2001", "555-123-2009", "555-123-1002", "555-123-1004"],
    "full_name": ["John Smith", "john smith", "Sarah Johnson", "Emma Wilson"],
    "dob": ["1985-06-15", "1990-11-22", "1995-08-17"],
    "mode": ["4g_5g_preferred", "4g_only", "3g_only", "2g_only"],
    "app_name": ["messaging"] * 3 + ["browser"],
    "permission": ["sms", "storage", "phone", "network", "SMS", "Storage"],
    "gb_amount": [2.0, 2.0, 1.0, 0.5, 3.0, 0.1, 12.25],
    "limit": [1, 2, 3, 12, 0, -1, 2.0],
    "reason": ["lost phone", ""],
    "summary": ["I cannot fix the issue."],
}
_APN = {
    "apn_name": ["internet", "broken"],
    "reset_at_reboot": [True, False, "yes", 0, 1.0, "off"],
    "mms_apn": ["mms", None, ""],
    "mmsc_url": ["http://mms.carrier.com/mms/wapenc", None, ""],
    "mms_proxy": [None, "10.0.0.1"],
    "mms_port": [None, 80, "8080", 80.0, " 1_000 ", True, "7.0"],
    "else": [1, "x", [1]],
}
_NEAR = [
    "", " ", "C9999", "L9999", "B9999", "P9999", "D9999", "X1", "c1001", "C1001 ", "5551232002", "nobody", "0", "None",
    "5g", "4G_ONLY", "calendar", "camera", "sms, storage", "1985-6-15", "é", "日本", "a'b\"c\\n", "{0}", "%s", "\n",
]  # fmt: skip
_NONSENSE: list[Any] = [
    None, True, False, 0, 1, -1, 2.5, -0.0, 1e308, -1e308, 10**30, 10**400, [], {}, [[]], {"a": 1}, ["C1001"],
    "x" * 300, {"apn_name": "wrong"}, {"mms_port": "x"}, {"mmsc_url": 5}, {"reset_at_reboot": 2}, "__class__",
    "os.system('true')",
]  # fmt: skip


def random_move(rng: random.Random) -> Move:
    """A call of either side: three of five sensible, one nearly so, one nonsense."""
    side = rng.choice(SIDES)
    document = rng.choice(telecom.functions(side))
    name, parameters = document["name"], document["parameters"]
    kind = rng.randrange(5)
    arguments = {
        key: _value(rng, key, kind)
        for key in parameters["properties"]
        if key in parameters["required"] or rng.random() < 0.5
    }
    if kind == 4:
        name, side = _spoil(rng, name, side, arguments)
    return side, Call(name, arguments)


def _value(rng: random.Random, key: str, kind: int) -> Any:
    if kind == 4 and rng.random() < 0.6:
        return rng.choice([each for each in _NONSENSE if key != "gb_amount" or type(each) is not int])
    if kind >= 3 and rng.random() < 0.5 and key not in ("limit", "gb_amount", "apn_settings"):
        return rng.choice(_NEAR)
    if kind >= 3 and key == "gb_amount":
        return rng.choice([0.0, -1.0, -0.5, 1e-9, 1e6, 1e308])
    if key == "apn_settings":
        settings = {name: rng.choice(values) for name, values in _APN.items() if rng.random() < 0.4}
        return {**settings, rng.choice(list(_APN)): rng.choice(_NONSENSE)} if kind >= 3 else settings
    return rng.choice(_IDS[key])


def _spoil(rng: random.Random, name: str, side: Side, arguments: dict[str, Any]) -> tuple[str, Side]:
    """Loses an argument, adds one, misspells the name or calls the other side, or nothing of these."""
    way = rng.randrange(6)
    if way == 0 and arguments:
        del arguments[rng.choice(list(arguments))]
    elif way == 1:
        arguments[rng.choice(["extra", "self", "state", "", *_IDS])] = rng.choice(_NONSENSE)
    elif way == 2:
        return rng.choice(
            ["done", "", name.upper(), f"_{name}", "__init__", "".join(rng.choices(string.printable, k=9))]
        ), side
    elif way == 3:
        return name, "user" if side == "agent" else "agent"
    return name, side


_TRANSFER: Move = ("agent", TRANSFER)


def gold(task: Task) -> Generator[Move, str, None]:
    """What the task's file says."""
    for action in task.gold:
        yield action.side, action.call


def nothing(task: Task) -> Generator[Move, str, None]:
    """No call at all."""
    yield from ()


def transfer(task: Task) -> Generator[Move, str, None]:
    """Gives up at once."""
    yield _TRANSFER


def fixes(task: Task) -> Generator[Move, str, None]:
    """Every fix and every toggle once, whatever the fault."""
    for side, call in FIXES:  # noqa: UP028 (a tuple hears no answers)
        yield side, call
    for name in TOGGLES:
        yield "user", Call(name, {})
    yield "user", Call("reboot_device", {})


def fixes_and_back(task: Task) -> Generator[Move, str, None]:
    """Every fix; toggles back what the phone then says stands wrong; reboots, and transfers on top of it."""
    for side, call in FIXES:  # noqa: UP028 (a tuple hears no answers)
        yield side, call
    for name, wrong in TOGGLES.items():
        text = yield "user", Call(name, {})
        if f"is now {wrong}." in text:
            yield "user", Call(name, {})
    yield "user", Call("reboot_device", {})
    yield _TRANSFER


STRATEGIES: dict[str, Callable[[Task], Generator[Move, str, None]]] = {
    each.__name__: each for each in (gold, nothing, transfer, fixes, fixes_and_back)
}


def play(task: Task, database: Database, strategy: str) -> list[tuple[Move, ToolResult]]:
    """Plays a whole strategy; it sees the text of each call before it makes the next."""
    moves, played = STRATEGIES[strategy](task), []
    with contextlib.suppress(StopIteration):
        move = next(moves)
        while True:
            played.append((move, result := database.call(move[1], move[0])))
            move = moves.send(result.text)
    return played
