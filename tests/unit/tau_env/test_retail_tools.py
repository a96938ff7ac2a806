"""Retail: what each tool says and does, from orders and users of the file."""

import json
from typing import Any

import pytest

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import retail
from tau_env.attempt import Attempt
from tau_env.retail.database import base

TASK = retail.load_tasks()[0]
ORDERS, USERS, PRODUCTS = (base().tables[name] for name in ("orders", "users", "products"))
HOME = {"address1": "1 Way", "address2": "", "city": "Ulm", "state": "BW", "country": "Germany", "zip": "89073"}


@pytest.fixture
def shop() -> Attempt:
    return retail.open(TASK)


def said(shop: Attempt, name: str, **arguments: Any) -> str:
    result = shop.call(Call(name, arguments), "agent")
    assert result.error is None, result.text
    return result.text


def record(shop: Attempt, name: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(shop, name, **arguments))
    return found


def refusal(shop: Attempt, name: str, **arguments: Any) -> str:
    before = shop.digest()
    result = shop.call(Call(name, arguments), "agent")
    assert result.error is ErrorKind.RESULT
    assert shop.digest() == before
    return result.text.removeprefix("Error: ")


def order_with(status: str, source: str = "") -> dict[str, Any]:
    """An order of the file that was paid once, from a source."""
    for order in ORDERS.values():
        method = USERS[order["user_id"]]["payment_methods"][order["payment_history"][0]["payment_method_id"]]
        if order["status"] == status and len(order["payment_history"]) == 1 and method["source"].startswith(source):
            return order
    raise AssertionError("no such order")


def other_variant(item: dict[str, Any], available: bool = True) -> dict[str, Any]:
    variants = PRODUCTS[item["product_id"]]["variants"].values()
    found: dict[str, Any] = next(v for v in variants if v["available"] is available and v["item_id"] != item["item_id"])
    return found


def balance(shop: Attempt, user_id: str, method: str) -> float:
    found: float = record(shop, "get_user_details", user_id=user_id)["payment_methods"][method]["balance"]
    return found


def test_records_are_read_as_they_are(shop: Attempt) -> None:
    for user_id in list(USERS)[:20]:
        assert record(shop, "get_user_details", user_id=user_id) == USERS[user_id]
    for order_id in list(ORDERS)[:20]:
        assert record(shop, "get_order_details", order_id=order_id) == ORDERS[order_id]
    for product_id in PRODUCTS:
        assert record(shop, "get_product_details", product_id=product_id) == PRODUCTS[product_id]


def test_all_products_are_listed_by_name(shop: Attempt) -> None:
    listed = record(shop, "list_all_product_types")
    assert list(listed) == sorted(listed) and len(listed) == 50
    assert set(listed.values()) == set(PRODUCTS)


def test_users_are_found_whatever_the_case(shop: Attempt) -> None:
    for user_id, user in list(USERS.items())[:50]:
        assert said(shop, "find_user_id_by_email", email=user["email"].upper()) == user_id
        name = {key: text.upper() for key, text in user["name"].items()}
        assert said(shop, "find_user_id_by_name_zip", **name, zip=user["address"]["zip"]) == user_id


def test_a_user_is_found_where_he_lives_now(shop: Attempt) -> None:
    user_id, user = next(iter(USERS.items()))
    said(shop, "modify_user_address", user_id=user_id, **HOME)
    assert said(shop, "find_user_id_by_name_zip", **user["name"], zip=HOME["zip"]) == user_id
    assert refusal(shop, "find_user_id_by_name_zip", **user["name"], zip=user["address"]["zip"]) == "User not found"


def test_what_is_not_there_is_said(shop: Attempt) -> None:
    assert refusal(shop, "get_user_details", user_id="nobody") == "User not found"
    assert refusal(shop, "get_order_details", order_id="W1") == "Order not found"
    assert refusal(shop, "get_product_details", product_id="1") == "Product not found"
    assert refusal(shop, "find_user_id_by_email", email="") == "User not found"
    assert refusal(shop, "modify_user_address", user_id="nobody", **HOME) == "User not found"
    assert refusal(shop, "modify_pending_order_address", order_id="", **HOME) == "Order not found"


def test_cancelling_gives_back_to_a_gift_card_at_once(shop: Attempt) -> None:
    order = order_with("pending", "gift_card")
    paid = order["payment_history"][0]
    before = balance(shop, order["user_id"], paid["payment_method_id"])
    after = record(shop, "cancel_pending_order", order_id=order["order_id"], reason="no longer needed")
    assert after["status"] == "cancelled" and after["cancel_reason"] == "no longer needed"
    assert after["payment_history"] == [paid, {**paid, "transaction_type": "refund"}]
    assert balance(shop, order["user_id"], paid["payment_method_id"]) == round(before + paid["amount"], 2)


def test_only_pending_orders_are_cancelled_and_for_a_reason(shop: Attempt) -> None:
    pending = {"order_id": order_with("pending")["order_id"]}
    assert refusal(shop, "cancel_pending_order", **pending, reason="bored") == "Invalid reason"
    for status in ("processed", "delivered"):
        text = refusal(shop, "cancel_pending_order", order_id=order_with(status)["order_id"], reason="bored")
        assert text == "Non-pending order cannot be cancelled"
    said(shop, "cancel_pending_order", **pending, reason="ordered by mistake")
    assert refusal(shop, "cancel_pending_order", **pending, reason="ordered by mistake").startswith("Non-pending")


def test_items_are_exchanged_at_the_difference_of_their_prices(shop: Attempt) -> None:
    order = order_with("delivered", "credit_card")
    item = order["items"][0]
    variant = other_variant(item)
    method = order["payment_history"][0]["payment_method_id"]
    arguments = {"order_id": order["order_id"], "payment_method_id": method}
    after = record(
        shop,
        "exchange_delivered_order_items",
        item_ids=[item["item_id"]],
        new_item_ids=[variant["item_id"]],
        **arguments,
    )
    assert after["status"] == "exchange requested"
    assert after["exchange_price_difference"] == round(variant["price"] - item["price"], 2)
    assert (after["exchange_items"], after["exchange_new_items"]) == ([item["item_id"]], [variant["item_id"]])
    again = refusal(shop, "exchange_delivered_order_items", item_ids=[], new_item_ids=[], **arguments)
    assert again == "Non-delivered order cannot be exchanged"


@pytest.mark.parametrize(
    ("tool", "status", "missing", "uneven"),
    [
        ("exchange_delivered_order_items", "delivered", "Number of 1 not found.", "should match."),
        ("modify_pending_order_items", "pending", "1 not found", "should match"),
    ],
)
def test_new_items_must_fit_the_old_ones(shop: Attempt, tool: str, status: str, missing: str, uneven: str) -> None:
    order = order_with(status, "credit_card")
    item, method = order["items"][0], order["payment_history"][0]["payment_method_id"]

    def ask(old: list[str], new: list[str], payment: str = method) -> str:
        arguments = {"item_ids": old, "new_item_ids": new, "payment_method_id": payment}
        return refusal(shop, tool, order_id=order["order_id"], **arguments)

    old, good = item["item_id"], other_variant(item)["item_id"]
    assert ask(["1"], [good]) == missing
    assert ask([old] * 9, [good] * 9).startswith(missing.replace("1", old).removesuffix("."))
    assert ask([old], []).endswith(uneven)
    assert ask([old], ["1"]) == "Variant not found"
    assert ask([old], [good], "nothing") == "Payment method not found"
    gone = next((v for v in PRODUCTS[item["product_id"]]["variants"].values() if not v["available"]), None)
    if gone is not None:
        assert ask([old], [gone["item_id"]]) == f"New item {gone['item_id']} not found or available"
    if tool == "modify_pending_order_items":
        assert ask([old], [old]) == "The new item id should be different from the old item id"


def test_items_of_a_pending_order_change_once(shop: Attempt) -> None:
    order = order_with("pending", "credit_card")
    item, method = order["items"][0], order["payment_history"][0]["payment_method_id"]
    variant = other_variant(item)
    arguments = {"order_id": order["order_id"], "item_ids": [item["item_id"]], "payment_method_id": method}
    after = record(shop, "modify_pending_order_items", new_item_ids=[variant["item_id"]], **arguments)
    assert after["status"] == "pending (item modified)"
    assert after["items"][0]["price"] == variant["price"] and after["items"][0]["options"] == variant["options"]
    assert after["items"][1:] == order["items"][1:]
    added = after["payment_history"][-1]
    assert added["amount"] == abs(variant["price"] - item["price"])
    assert added["transaction_type"] == ("payment" if variant["price"] > item["price"] else "refund")
    assert refusal(shop, "modify_pending_order_items", new_item_ids=[item["item_id"]], **arguments).startswith("Non-")
    elsewhere = record(shop, "modify_pending_order_address", order_id=order["order_id"], **HOME)
    assert elsewhere["address"] == HOME


def test_an_order_is_paid_in_another_way_and_the_first_is_given_back(shop: Attempt) -> None:
    order = next(
        order
        for order in ORDERS.values()
        if order["status"] == "pending"
        and len(order["payment_history"]) == 1
        and len(USERS[order["user_id"]]["payment_methods"]) > 1
        and all(m.get("balance", 1e9) > 5_000 for m in USERS[order["user_id"]]["payment_methods"].values())
    )
    paid = order["payment_history"][0]
    other = next(m for m in USERS[order["user_id"]]["payment_methods"] if m != paid["payment_method_id"])
    arguments = {"order_id": order["order_id"]}
    same = refusal(shop, "modify_pending_order_payment", payment_method_id=paid["payment_method_id"], **arguments)
    assert same == "The new payment method should be different from the current one"
    after = record(shop, "modify_pending_order_payment", payment_method_id=other, **arguments)
    assert [p["transaction_type"] for p in after["payment_history"]] == ["payment", "payment", "refund"]
    assert [p["payment_method_id"] for p in after["payment_history"]] == [
        paid["payment_method_id"],
        other,
        paid["payment_method_id"],
    ]
    again = refusal(shop, "modify_pending_order_payment", payment_method_id=other, **arguments)
    assert again == "There should be exactly one payment for a pending order"


def test_a_gift_card_pays_no_more_than_it_holds(shop: Attempt) -> None:
    for order in ORDERS.values():
        methods = USERS[order["user_id"]]["payment_methods"]
        amount = order["payment_history"][0]["amount"]
        poor = [name for name, method in methods.items() if method.get("balance", 1e9) < amount]
        poor = [name for name in poor if name != order["payment_history"][0]["payment_method_id"]]
        if order["status"] == "pending" and len(order["payment_history"]) == 1 and poor:
            text = refusal(shop, "modify_pending_order_payment", order_id=order["order_id"], payment_method_id=poor[0])
            assert text == "Insufficient gift card balance to pay for the order"
            return
    raise AssertionError("no such order")


def test_items_are_taken_back_to_where_they_were_paid_from_or_a_gift_card(shop: Attempt) -> None:
    order = order_with("delivered", "credit_card")
    item, paid = order["items"][0]["item_id"], order["payment_history"][0]["payment_method_id"]
    arguments = {"order_id": order["order_id"], "payment_method_id": paid}
    assert refusal(shop, "return_delivered_order_items", item_ids=[item, "1"], **arguments) == "Some item not found"
    for name, method in USERS[order["user_id"]]["payment_methods"].items():
        if name != paid and method["source"] != "gift_card":
            asked = {"order_id": order["order_id"], "item_ids": [item], "payment_method_id": name}
            text = refusal(shop, "return_delivered_order_items", **asked)
            assert text == "Payment method should be the original payment method"
    after = record(shop, "return_delivered_order_items", item_ids=[item], **arguments)
    assert (after["status"], after["return_items"]) == ("return requested", [item])
    assert refusal(shop, "return_delivered_order_items", item_ids=[item], **arguments).startswith("Non-delivered")
    assert len(shop.written) == 1
