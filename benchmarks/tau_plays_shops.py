"""Random plays of retail and airline for `tau_differential_shops.py`: sensible calls, near misses and nonsense.

A play follows one user of the database: its orders or reservations, its payment methods, variants of its items, flights
on its routes. So most calls reach the code behind the checks, and later ones meet what earlier ones changed.
"""

import json
import random
from collections.abc import Callable
from typing import Any

Arguments = dict[str, Any]
Tables = dict[str, dict[str, Any]]

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3.0,
    2.5,
    1e300,
    10**400,
    "",
    " ",
    "null",
    "é\u2028\x00'\"\\",
    "A" * 3_000,
    [],
    [None],
    ["x", 3],
    {},
    {"a": {"b": [1]}},
    [[[[[]]]]],
)
EXPRESSIONS = (
    "2 + 2",
    "(13.5-2)*3/7",
    "1/0",
    "-(-3)",
    "7//2",
    "0.1+0.2",
    " 1",
    "1.",
    ".5",
    "01",
    "1 2",
    "(",
    ")",
    "",
    "()",
    "...",
    "1,2",
    "1e5",
    "abs(1)",
    "9" * 320,
    "9" * 320 + ".0",
    "9" * 320 + ".0-" + "9" * 320 + ".0",
    "1" + "+1" * 400,
    "(" * 150 + "1" + ")" * 150,
    "(" * 250 + "1" + ")" * 250,
    "-" * 60 + "1",
    "3*(2",
    "5//0",
    "5/0.0",
    "10" * 150 + "/3",
    "2.675*1",
    "1.005",
    "-0.001",
)


class Plays:
    """Makes plays of one domain; the same for the same seed."""

    def __init__(self, tables: Tables, docs: tuple[Any, ...], seed: int) -> None:
        self.pick = random.Random(seed)
        self.tables = tables
        self.docs = {doc["name"]: doc["parameters"]["properties"] for doc in docs}
        self.users = sorted(tables["users"])
        self.user = tables["users"][self.users[0]]

    def play(self, length: int) -> list[tuple[str, Arguments]]:
        """Calls around one user."""
        self.user = self.tables["users"][self.pick.choice(self.users)]
        return [self.call() for _ in range(length)]

    def call(self) -> tuple[str, Arguments]:
        """Seven of ten calls are sensible, two are near misses, one is nonsense."""
        kind = self.pick.random()
        if kind < 0.02:
            return self.pick.choice(("", "cancel", "__class__", "get_user", "initialize", "db", "A" * 500)), {}
        name = self.pick.choice(self.names())
        arguments = getattr(self, name, lambda: {})()
        if kind < 0.1:
            arguments = {key: self.pick.choice(JUNK) for key in self.docs[name]}
        elif kind < 0.3 and arguments:
            arguments = self.spoil(arguments)
        return name, json.loads(json.dumps(arguments))

    def names(self) -> list[str]:
        """Writes twice as often as reads."""
        raise NotImplementedError

    def spoil(self, arguments: Arguments) -> Arguments:
        """One thing wrong."""
        key = self.pick.choice(sorted(arguments))
        value = arguments[key]
        how = self.pick.randrange(5)
        if how == 0:
            return {name: item for name, item in arguments.items() if name != key}
        if how == 1:
            return {**arguments, self.pick.choice(("extra", "x'y", "user")): self.pick.choice(JUNK)}
        if how == 2:
            return {**arguments, key: self.pick.choice(JUNK)}
        return {**arguments, key: self.bend(value)}

    def bend(self, value: Any) -> Any:
        """A value that is nearly right."""
        if isinstance(value, str):
            return self.pick.choice((value.upper(), value[:-1], value + " ", value.lstrip("#"), [value]))
        if isinstance(value, int | float):
            return self.pick.choice((value + 1, -value, float(value), str(value), value + 0.5))
        changes: tuple[Callable[[], Any], ...] = (
            lambda: value[1:],
            lambda: value + value,
            lambda: value[::-1],
            lambda: [*value, self.pick.choice(JUNK)],
            lambda: json.dumps(value),
            lambda: [self.bend_object(item) if isinstance(item, dict) else item for item in value],
        )
        return self.pick.choice(changes)()

    def bend_object(self, item: dict[str, Any]) -> dict[str, Any]:
        """An object inside a list, nearly right."""
        if not item:
            return item
        key = self.pick.choice(sorted(item))
        value = item[key]
        return self.pick.choice(
            (
                {**item, "more": 1},
                {name: other for name, other in item.items() if name != key},
                {**item, key: self.pick.choice(JUNK)},
                {**item, key: str(value)},
                {**item, key: f" {value}.0"},
            )
        )

    def one(self, values: Any) -> Any:
        """One of some values, or a text that is none of them."""
        values = list(values)
        return self.pick.choice(values) if values else "nothing"

    def payment(self) -> str:
        """A payment method: of this user nine times of ten."""
        user = self.user if self.pick.random() < 0.9 else self.tables["users"][self.pick.choice(self.users)]
        found: str = self.one(user["payment_methods"])
        return found

    def calculate(self) -> Arguments:
        return {"expression": self.pick.choice(EXPRESSIONS)}

    def transfer_to_human_agents(self) -> Arguments:
        return {"summary": "The user wants a human."}

    def get_user_details(self) -> Arguments:
        return {"user_id": self.user["user_id"]}


class RetailPlays(Plays):
    """Plays of retail."""

    def names(self) -> list[str]:
        return [name for name in self.docs for _ in range(3 if name[:4] in ("modi", "exch", "retu", "canc") else 1)]

    def order(self) -> dict[str, Any]:
        """An order of this user, seldom of another."""
        ids = self.user["orders"] if self.pick.random() < 0.95 else list(self.tables["orders"])
        found: dict[str, Any] = self.tables["orders"].get(self.one(ids)) or next(iter(self.tables["orders"].values()))
        return found

    def address(self) -> Arguments:
        user = self.tables["users"][self.pick.choice(self.users)]
        extra = self.pick.choice(("", " 🏠", '"\\', "\x07"))
        return {**user["address"], "address2": user["address"]["address2"] + extra}

    def variants(self, product_id: str) -> dict[str, Any]:
        """Variants of a product: those that can be had, mostly."""
        variants = self.tables["products"][product_id]["variants"]
        there = {key: variant for key, variant in variants.items() if variant["available"]}
        return there if there and self.pick.random() < 0.9 else variants

    def items(self) -> Arguments:
        order = self.order()
        count = self.pick.randint(0 if self.pick.random() < 0.1 else 1, len(order["items"]))
        chosen = self.pick.sample(order["items"], count)
        return {
            "order_id": order["order_id"],
            "item_ids": [item["item_id"] for item in chosen],
            "new_item_ids": [self.one(self.variants(item["product_id"])) for item in chosen],
            "payment_method_id": self.payment(),
        }

    def cancel_pending_order(self) -> Arguments:
        reason = self.pick.choice(("no longer needed", "no longer needed", "ordered by mistake", "other"))
        return {"order_id": self.order()["order_id"], "reason": reason}

    exchange_delivered_order_items = items
    modify_pending_order_items = items

    def return_delivered_order_items(self) -> Arguments:
        arguments = self.items()
        del arguments["new_item_ids"]
        history = self.tables["orders"][arguments["order_id"]]["payment_history"]
        if self.pick.random() < 0.6:
            arguments["payment_method_id"] = history[0]["payment_method_id"]
        return arguments

    def modify_pending_order_address(self) -> Arguments:
        return {"order_id": self.order()["order_id"], **self.address()}

    def modify_user_address(self) -> Arguments:
        return {"user_id": self.user["user_id"], **self.address()}

    def modify_pending_order_payment(self) -> Arguments:
        return {"order_id": self.order()["order_id"], "payment_method_id": self.payment()}

    def find_user_id_by_email(self) -> Arguments:
        return {"email": self.pick.choice((str.upper, str))(self.user["email"])}

    def find_user_id_by_name_zip(self) -> Arguments:
        other = self.tables["users"][self.pick.choice(self.users)]
        zip_code = self.pick.choice((self.user, self.user, other))["address"]["zip"]
        return {**self.user["name"], "zip": zip_code}

    def get_order_details(self) -> Arguments:
        return {"order_id": self.order()["order_id"]}

    def get_product_details(self) -> Arguments:
        return {"product_id": self.one(self.tables["products"])}
