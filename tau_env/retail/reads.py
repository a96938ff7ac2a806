"""Retail's database (50 products, 500 users, 1,000 orders), the tools that change nothing, and shared look-ups."""

import json
from collections.abc import Mapping
from functools import cache

from tau_env.attempt import Refused
from tau_env.records import Base, Record, Tables, read_base

_LATER = (
    *("cancel_reason", "exchange_items", "exchange_new_items", "exchange_payment_method_id"),
    *("exchange_price_difference", "return_items", "return_payment_method_id"),
)
"""Fields of an order that its file does not have before a tool fills them; models read them all."""


@cache
def base() -> Base:
    """The database, read once.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    base = read_base("retail")
    orders = {key: {**order, **dict.fromkeys(_LATER)} for key, order in base.tables["orders"].items()}
    return Base(base.identity, {**base.tables, "orders": orders})


@cache
def _users_by_email() -> Mapping[str, str]:
    """The first user of each address, in small letters. No tool changes an email."""
    found: dict[str, str] = {}
    for user_id, user in base().tables["users"].items():
        found.setdefault(user["email"].lower(), user_id)
    return found


@cache
def _users_by_name() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The users of each first and last name, in small letters. No tool changes a name."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for user_id, user in base().tables["users"].items():
        name = (user["name"]["first_name"].lower(), user["name"]["last_name"].lower())
        found[name] = (*found.get(name, ()), user_id)
    return found


def order_of(tables: Tables, order_id: str) -> Record:
    """Raises: Refused."""
    if (order := tables.get("orders", order_id)) is None:
        raise Refused("Order not found")
    return order


def user_of(tables: Tables, user_id: str) -> Record:
    """Raises: Refused."""
    if (user := tables.get("users", user_id)) is None:
        raise Refused("User not found")
    return user


def product_of(tables: Tables, product_id: str) -> Record:
    """Raises: Refused."""
    if (product := tables.get("products", product_id)) is None:
        raise Refused("Product not found")
    return product


def payment_method_of(tables: Tables, user_id: str, payment_method_id: str) -> Record:
    """Raises: Refused."""
    methods = user_of(tables, user_id)["payment_methods"]
    if payment_method_id not in methods:
        raise Refused("Payment method not found")
    method: Record = methods[payment_method_id]
    return method


def find_user_id_by_email(tables: Tables, email: str) -> str:
    """A user's id. Raises: Refused."""
    if (user_id := _users_by_email().get(email.lower())) is None:
        raise Refused("User not found")
    return user_id


def find_user_id_by_name_zip(tables: Tables, first_name: str, last_name: str, zip: str) -> str:
    """A user's id; the address is the present one. Raises: Refused."""
    for user_id in _users_by_name().get((first_name.lower(), last_name.lower()), ()):
        if user_of(tables, user_id)["address"]["zip"] == zip:
            return user_id
    raise Refused("User not found")


def get_order_details(tables: Tables, order_id: str) -> str:
    """An order. Raises: Refused."""
    return json.dumps(order_of(tables, order_id))


def get_product_details(tables: Tables, product_id: str) -> str:
    """A product with its variants. Raises: Refused."""
    return json.dumps(product_of(tables, product_id))


def get_user_details(tables: Tables, user_id: str) -> str:
    """A user. Raises: Refused."""
    return json.dumps(user_of(tables, user_id))


def list_all_product_types(tables: Tables) -> str:
    """Names and ids of all products, by name."""
    return _product_types()


@cache
def _product_types() -> str:
    names = {product["name"]: product["product_id"] for product in base().tables["products"].values()}
    return json.dumps(dict(sorted(names.items())))
