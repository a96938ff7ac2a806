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
from tau_env.attempt import Refused

Record = Mapping[str, Any]

TODAY = "2025-02-25"
"""Upstream's clock stands still; everything else that depends on it is written out below."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "plans": ("plan_id", "name", "data_limit_gb", "price_per_month", "data_refueling_price_per_gb"),
    "customers": (
        *("customer_id", "full_name", "date_of_birth", "email", "phone_number", "address", "account_status"),
        *("payment_methods", "line_ids", "bill_ids", "created_at", "last_extension_date"),
        "goodwill_credit_used_this_year",
    ),
    "lines": (
        *("line_id", "phone_number", "status", "plan_id", "device_id", "data_used_gb", "data_refueling_gb"),
        *("roaming_enabled", "contract_end_date", "last_plan_change_date", "last_sim_replacement_date"),
        "suspension_start_date",
    ),
    "bills": (
        *("bill_id", "customer_id", "period_start", "period_end", "issue_date", "total_due", "due_date"),
        *("line_items", "status"),
    ),
    "devices": (
        *("device_id", "device_type", "model", "imei", "is_esim_capable", "activated", "activation_date"),
        "last_esim_transfer_date",
    ),
}
"""Table -> fields of a record in upstream's order, its id first; one that the file does not have is null."""


@dataclass(slots=True)
class Company:
    """Five tables by id. A write replaces a table; no table or record is ever changed in place."""

    tables: Mapping[str, Mapping[str, Record]]

    def find(self, table: str, key: str) -> Record:
        """A record by its id. Raises: Refused, as all look-ups here."""
        if (record := self.tables[table].get(key)) is None:
            raise Refused(f"{table[:-1].title()} with ID {key} not found")
        return record

    def change(self, table: str, key: str, **changes: Any) -> Record:
        """Puts a changed copy of a record in its place, or a new one after all others, and returns it."""
        record = {**self.tables[table].get(key, dict.fromkeys(_FIELDS[table])), **changes}
        self.tables = {**self.tables, table: {**self.tables[table], key: record}}
        return record

    def owned_line(self, customer_id: str, line_id: str) -> Record:
        """A line by its id, if this customer has it."""
        if line_id not in self.find("customers", customer_id)["line_ids"]:
            raise Refused(f"Line {line_id} not found for customer {customer_id}")
        return self.find("lines", line_id)

    def customer_with_phone(self, phone_number: str) -> Record:
        """The first customer whose contact number, or whose line, this is."""
        for customer in self.tables["customers"].values():
            lines = (self.find("lines", line_id) for line_id in customer["line_ids"])
            if customer["phone_number"] == phone_number or any(line["phone_number"] == phone_number for line in lines):
                return customer
        raise Refused(f"Customer with phone number {phone_number} not found")

    def line_with_phone(self, phone_number: str) -> Record:
        """A line by its number."""
        for line in self.tables["lines"].values():
            if line["phone_number"] == phone_number:
                return line
        raise Refused(f"Line with phone number {phone_number} not found")

    def awaiting_payment(self, customer: Record) -> list[Record]:
        """The customer's bills that were requested and are not paid yet."""
        bills = [self.find("bills", bill_id) for bill_id in customer["bill_ids"]]
        return [bill for bill in bills if bill["status"] == "Awaiting Payment"]

    def add_bill(self, bill_id: str, customer_id: str, **values: Any) -> None:
        """A new bill of a customer, after all others."""
        bills = self.find("customers", customer_id)["bill_ids"]
        self.change("bills", bill_id, bill_id=bill_id, customer_id=customer_id, line_items=[], total_due=0.0, **values)
        self.change("customers", customer_id, bill_ids=[*bills, bill_id])

    def charge(self, bill_id: str, description: str, amount: float) -> None:
        """One more item on a bill."""
        bill = self.find("bills", bill_id)
        item = {"description": description, "amount": amount, "date": TODAY, "item_type": "Charge"}
        self.change("bills", bill_id, line_items=[*bill["line_items"], item], total_due=bill["total_due"] + amount)


def open_company() -> Company:
    """The company before anything has happened, for one episode."""
    return Company(_tables())


@cache
def _tables() -> Mapping[str, Mapping[str, Record]]:
    data = tomllib.loads(source.read("domains/telecom/db.toml").decode())
    return {
        table: {row[fields[0]]: {name: row.get(name) for name in fields} for row in data[table]}
        for table, fields in _FIELDS.items()
    }
