"""Retail's tools that change nothing, and the look-ups which those that do share with them."""

import json
from functools import cache

from tau_env.attempt import Refused
from tau_env.records import Record, Tables
from tau_env.retail.database import base, users_by_email, users_by_name


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
    if (user_id := users_by_email().get(email.lower())) is None:
        raise Refused("User not found")
    return user_id


def find_user_id_by_name_zip(tables: Tables, first_name: str, last_name: str, zip: str) -> str:
    """A user's id; the address is the present one. Raises: Refused."""
    for user_id in users_by_name().get((first_name.lower(), last_name.lower()), ()):
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
