"""Retail's tools that change something: first all that upstream checks, in its order, then the change."""

import json

from tau_env.attempt import Refused, storable
from tau_env.records import Record, Tables
from tau_env.retail.reads import order_of, payment_method_of, product_of, user_of

_REASONS = ("no longer needed", "ordered by mistake")


def cancel_pending_order(tables: Tables, order_id: str, reason: str) -> str:
    """Cancel, and give back what was paid. Raises: Refused."""
    if order_of(tables, order_id)["status"] != "pending":
        raise Refused("Non-pending order cannot be cancelled")
    if reason not in _REASONS:
        raise Refused("Invalid reason")
    order = tables.edit("orders", order_id)
    refunds = []
    for payment in order["payment_history"]:
        refunds.append(_payment("refund", payment["amount"], payment["payment_method_id"]))
        _pay(tables, order["user_id"], payment["payment_method_id"], -payment["amount"])
    order["status"] = "cancelled"
    order["cancel_reason"] = reason
    order["payment_history"] += refunds
    return json.dumps(order)


def exchange_delivered_order_items(
    tables: Tables, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Ask for other variants of delivered items. Raises: Refused."""
    order = order_of(tables, order_id)
    if order["status"] != "delivered":
        raise Refused("Non-delivered order cannot be exchanged")
    if (item_id := _too_many(order, item_ids)) is not None:
        raise Refused(f"Number of {item_id} not found.")
    if len(item_ids) != len(new_item_ids):
        raise Refused("The number of items to be exchanged should match.")
    difference = 0.0
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        item = _item(order, item_id)
        difference += _variant(tables, item, new_item_id)["price"] - item["price"]
    difference = round(difference, 2)
    if not _can_pay(payment_method_of(tables, order["user_id"], payment_method_id), difference):
        raise Refused("Insufficient gift card balance to pay for the price difference")
    order = tables.edit("orders", order_id)
    order["status"] = "exchange requested"
    order["exchange_items"] = sorted(item_ids)
    order["exchange_new_items"] = sorted(new_item_ids)
    order["exchange_payment_method_id"] = payment_method_id
    order["exchange_price_difference"] = difference
    return json.dumps(order)


def modify_pending_order_address(tables: Tables, order_id: str, **address: str) -> str:
    """Send an order elsewhere. Raises: Refused, Unfit."""
    _check_pending(order_of(tables, order_id))
    order = tables.edit("orders", order_id)
    order["address"] = _address(**address)
    return json.dumps(order)


def modify_pending_order_items(
    tables: Tables, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> str:
    """Change items of an order to other variants, once. Raises: Refused.

    As upstream, every changed item gets price and options of the last new variant.
    """
    order = order_of(tables, order_id)
    if order["status"] != "pending":
        raise Refused("Non-pending order cannot be modified")
    if (item_id := _too_many(order, item_ids)) is not None:
        raise Refused(f"{item_id} not found")
    if len(item_ids) != len(new_item_ids):
        raise Refused("The number of items to be exchanged should match")
    difference = 0.0
    variant: Record = {}
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        if item_id == new_item_id:
            raise Refused("The new item id should be different from the old item id")
        item = _item(order, item_id)
        variant = _variant(tables, item, new_item_id)
        difference += variant["price"] - item["price"]
    if not _can_pay(payment_method_of(tables, order["user_id"], payment_method_id), difference):
        raise Refused("Insufficient gift card balance to pay for the new item")
    order = tables.edit("orders", order_id)
    kind = "payment" if difference > 0 else "refund"
    order["payment_history"].append(_payment(kind, abs(difference), payment_method_id))
    _pay(tables, order["user_id"], payment_method_id, difference)
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        item = _item(order, item_id)
        item.update(item_id=new_item_id, price=variant["price"], options=dict(variant["options"]))
    order["status"] = "pending (item modified)"
    return json.dumps(order)


def modify_pending_order_payment(tables: Tables, order_id: str, payment_method_id: str) -> str:
    """Pay an order in another way. Raises: Refused."""
    order = order_of(tables, order_id)
    _check_pending(order)
    method = payment_method_of(tables, order["user_id"], payment_method_id)
    history = order["payment_history"]
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise Refused("There should be exactly one payment for a pending order")
    before, amount = history[0]["payment_method_id"], history[0]["amount"]
    if before == payment_method_id:
        raise Refused("The new payment method should be different from the current one")
    if not _can_pay(method, amount):
        raise Refused("Insufficient gift card balance to pay for the order")
    order = tables.edit("orders", order_id)
    order["payment_history"] += [_payment("payment", amount, payment_method_id), _payment("refund", amount, before)]
    _pay(tables, order["user_id"], payment_method_id, amount)
    _pay(tables, order["user_id"], before, -amount)
    return json.dumps(order)


def modify_user_address(tables: Tables, user_id: str, **address: str) -> str:
    """Change where a user lives. Raises: Refused, Unfit."""
    user_of(tables, user_id)
    user = tables.edit("users", user_id)
    user["address"] = _address(**address)
    return json.dumps(user)


def return_delivered_order_items(tables: Tables, order_id: str, item_ids: list[str], payment_method_id: str) -> str:
    """Ask to send items back. Raises: Refused."""
    order = order_of(tables, order_id)
    if order["status"] != "delivered":
        raise Refused("Non-delivered order cannot be returned")
    method = payment_method_of(tables, order["user_id"], payment_method_id)
    if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
        raise Refused("Payment method should be the original payment method")
    if _too_many(order, item_ids) is not None:
        raise Refused("Some item not found")
    order = tables.edit("orders", order_id)
    order["status"] = "return requested"
    order["return_items"] = sorted(item_ids)
    order["return_payment_method_id"] = payment_method_id
    return json.dumps(order)


def _check_pending(order: Record) -> None:
    if "pending" not in order["status"]:
        raise Refused("Non-pending order cannot be modified")


def _too_many(order: Record, item_ids: list[str]) -> str | None:
    """The first id that is asked for more often than the order has it. A list without one is as short as the order."""
    there = [item["item_id"] for item in order["items"]]
    return next((item_id for item_id in item_ids if item_ids.count(item_id) > there.count(item_id)), None)


def _item(order: Record, item_id: str) -> Record:
    item: Record = next(item for item in order["items"] if item["item_id"] == item_id)
    return item


def _variant(tables: Tables, item: Record, new_item_id: str) -> Record:
    variants = product_of(tables, item["product_id"])["variants"]
    if new_item_id not in variants:
        raise Refused("Variant not found")
    variant: Record = variants[new_item_id]
    if not variant["available"]:
        raise Refused(f"New item {new_item_id} not found or available")
    return variant


def _can_pay(method: Record, amount: float) -> bool:
    return method["source"] != "gift_card" or bool(method["balance"] >= amount)


def _pay(tables: Tables, user_id: str, payment_method_id: str, amount: float) -> None:
    """Take from a gift card, or give back. Other methods have no balance."""
    if payment_method_of(tables, user_id, payment_method_id)["source"] == "gift_card":
        method = tables.edit("users", user_id)["payment_methods"][payment_method_id]
        method["balance"] = round(method["balance"] - amount, 2)


def _payment(kind: str, amount: float, payment_method_id: str) -> Record:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Record:
    return storable(
        {"address1": address1, "address2": address2, "city": city, "country": country, "state": state, "zip": zip}
    )
