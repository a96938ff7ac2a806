"""What the company knows: plans, customers, lines, bills, devices. Records that two episodes share are never changed.

A record is a dict of JSON values whose keys stand in upstream's order, because results show them in that order. A write
puts a changed copy of one record into a new table; the other records, and all tables of other episodes, stay the same
objects. Tables have five to nine records.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tau_env import source

Record = Mapping[str, Any]
Table = Mapping[str, Record]

TODAY = "2025-02-25"
"""Upstream's clock stands still; everything else that depends on it is written out below."""

_LINE: Record = {
    "line_id": None,
    "phone_number": None,
    "status": "Pending Activation",
    "plan_id": None,
    "device_id": None,
    "data_used_gb": 0.0,
    "data_refueling_gb": 0.0,
    "roaming_enabled": False,
    "contract_end_date": None,
    "last_plan_change_date": None,
    "last_sim_replacement_date": None,
    "suspension_start_date": None,
}
_DEVICE: Record = {
    "device_id": None,
    "device_type": None,
    "model": None,
    "imei": None,
    "is_esim_capable": None,
    "activated": False,
    "activation_date": None,
    "last_esim_transfer_date": None,
}
_BILL: Record = {
    "bill_id": None,
    "customer_id": None,
    "period_start": None,
    "period_end": None,
    "issue_date": None,
    "total_due": None,
    "due_date": None,
    "line_items": [],
    "status": "Draft",
}
_CUSTOMER: Record = {
    "customer_id": None,
    "full_name": None,
    "date_of_birth": None,
    "email": None,
    "phone_number": None,
    "address": None,
    "account_status": "Pending Verification",
    "payment_methods": [],
    "line_ids": [],
    "bill_ids": [],
    "created_at": "2025-01-01T00:00:00",
    "last_extension_date": None,
    "goodwill_credit_used_this_year": 0.0,
}
_PLAN: Record = dict.fromkeys(("plan_id", "name", "data_limit_gb", "price_per_month", "data_refueling_price_per_gb"))


class Refusal(Exception):
    """A function says no where upstream raises an error, in its words."""


class SaysNo(Refusal):
    """A function says no in an answer that upstream returns like any other: no `Error: ` stands before it."""


def _found(table: Table, kind: str, key: str) -> Record:
    if (record := table.get(key)) is None:
        raise Refusal(f"{kind} with ID {key} not found")
    return record


@dataclass(slots=True)
class Company:
    """Five tables by id. A write replaces a table; no table or record is ever changed in place."""

    plans: Table
    customers: Table
    lines: Table
    bills: Table
    devices: Table

    def customer(self, customer_id: str) -> Record:
        """Raises Refusal where there is none, as all look-ups here."""
        return _found(self.customers, "Customer", customer_id)

    def line(self, line_id: str) -> Record:
        """A line by its id."""
        return _found(self.lines, "Line", line_id)

    def plan(self, plan_id: str) -> Record:
        """A plan by its id."""
        return _found(self.plans, "Plan", plan_id)

    def device(self, device_id: str) -> Record:
        """A device by its id."""
        return _found(self.devices, "Device", device_id)

    def bill(self, bill_id: str) -> Record:
        """A bill by its id."""
        return _found(self.bills, "Bill", bill_id)

    def owned_line(self, customer_id: str, line_id: str) -> Record:
        """A line by its id, if this customer has it."""
        if line_id not in self.customer(customer_id)["line_ids"]:
            raise Refusal(f"Line {line_id} not found for customer {customer_id}")
        return self.line(line_id)

    def customer_with_phone(self, phone_number: str) -> Record:
        """The first customer whose contact number, or whose line, this is."""
        for customer in self.customers.values():
            lines = (self.line(line_id) for line_id in customer["line_ids"])
            if customer["phone_number"] == phone_number or any(line["phone_number"] == phone_number for line in lines):
                return customer
        raise Refusal(f"Customer with phone number {phone_number} not found")

    def line_with_phone(self, phone_number: str) -> Record:
        """A line by its number."""
        for line in self.lines.values():
            if line["phone_number"] == phone_number:
                return line
        raise Refusal(f"Line with phone number {phone_number} not found")

    def awaiting_payment(self, customer: Record) -> list[Record]:
        """The customer's bills that were requested and are not paid yet."""
        bills = [self.bill(bill_id) for bill_id in customer["bill_ids"]]
        return [bill for bill in bills if bill["status"] == "Awaiting Payment"]

    def change_line(self, line_id: str, **changes: Any) -> Record:
        """Puts a changed copy of a line in its place, and returns it."""
        changed = {**self.line(line_id), **changes}
        self.lines = {**self.lines, line_id: changed}
        return changed

    def change_bill(self, bill_id: str, **changes: Any) -> None:
        """Puts a changed copy of a bill in its place."""
        self.bills = {**self.bills, bill_id: {**self.bill(bill_id), **changes}}

    def add_bill(self, bill_id: str, customer_id: str, **values: Any) -> Record:
        """A new bill of a customer, after all others."""
        customer = self.customer(customer_id)
        bill = {**_BILL, "bill_id": bill_id, "customer_id": customer_id, **values}
        self.bills = {**self.bills, bill_id: bill}
        self.customers = {**self.customers, customer_id: {**customer, "bill_ids": [*customer["bill_ids"], bill_id]}}
        return bill

    def charge(self, bill_id: str, description: str, amount: float) -> None:
        """One more item on a bill."""
        bill = self.bill(bill_id)
        item = {
            "description": description,
            "amount": amount,
            "date": TODAY,
            "item_type": "Credit" if amount < 0 else "Charge",
        }
        self.change_bill(bill_id, line_items=[*bill["line_items"], item], total_due=bill["total_due"] + amount)

    def dump(self) -> dict[str, list[Record]]:
        """All records, as upstream's database would list them."""
        return {name: list(getattr(self, name).values()) for name in self.__dataclass_fields__}


def open_company() -> Company:
    """The company before anything has happened, for one episode."""
    return Company(*_tables())


@cache
def _tables() -> tuple[Table, ...]:
    data = tomllib.loads(source.read("domains/telecom/db.toml").decode())
    shapes: dict[str, tuple[str, Record]] = {
        "plans": ("plan_id", _PLAN),
        "customers": ("customer_id", _CUSTOMER),
        "lines": ("line_id", _LINE),
        "bills": ("bill_id", _BILL),
        "devices": ("device_id", _DEVICE),
    }
    return tuple({record[key]: {**shape, **record} for record in data[table]} for table, (key, shape) in shapes.items())
