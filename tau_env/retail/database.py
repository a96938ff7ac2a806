"""Retail's database: 50 products, 500 users, 1,000 orders, and the look-ups that a scan would make slow."""

from collections.abc import Mapping
from functools import cache

from tau_env.records import Base
from tau_env.task_files import Each, load_records, shaped

_ADDRESS = dict.fromkeys(("address1", "address2", "city", "country", "state", "zip"))
_PAYMENT_METHOD = (
    "source",
    {
        "credit_card": {"source": None, "id": None, "brand": None, "last_four": None},
        "gift_card": {"source": None, "id": None, "balance": float},
        "paypal": {"source": None, "id": None},
    },
)
_SHAPES = {
    "products": {
        "name": None,
        "product_id": None,
        "variants": Each({"item_id": None, "options": None, "available": None, "price": float}),
    },
    "users": {
        "user_id": None,
        "name": {"first_name": None, "last_name": None},
        "address": _ADDRESS,
        "email": None,
        "payment_methods": Each(_PAYMENT_METHOD),
        "orders": None,
    },
    "orders": {
        "order_id": None,
        "user_id": None,
        "address": _ADDRESS,
        "items": [{"name": None, "product_id": None, "item_id": None, "price": float, "options": None}],
        "status": None,
        "fulfillments": [{"tracking_id": None, "item_ids": None}],
        "payment_history": [{"transaction_type": None, "amount": float, "payment_method_id": None}],
        "cancel_reason": None,
        "exchange_items": None,
        "exchange_new_items": None,
        "exchange_payment_method_id": None,
        "exchange_price_difference": float,
        "return_items": None,
        "return_payment_method_id": None,
    },
}
"""Fields in the order in which models read them."""


@cache
def base() -> Base:
    """The database, read once.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    identity, tables = load_records("retail")
    return Base(identity, {name: shaped(tables[name], Each(shape)) for name, shape in _SHAPES.items()})


@cache
def users_by_email() -> Mapping[str, str]:
    """The first user of each address, in small letters. No tool changes an email."""
    found: dict[str, str] = {}
    for user_id, user in base().tables["users"].items():
        found.setdefault(user["email"].lower(), user_id)
    return found


@cache
def users_by_name() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The users of each first and last name, in small letters. No tool changes a name."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for user_id, user in base().tables["users"].items():
        name = (user["name"]["first_name"].lower(), user["name"]["last_name"].lower())
        found[name] = (*found.get(name, ()), user_id)
    return found
