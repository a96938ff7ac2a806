"""The agent's thirteen functions on the company's tables, worded as tau2-bench words them.

Each takes the state and arguments that fit its documentation, and returns a text or raises `Refusal`.
"""

import json
import re
import zlib
from typing import Any

from tau_env.telecom.company import TODAY, Refusal
from tau_env.telecom.state import State

_TIME = re.compile(r"(-\d\d)T(\d\d:)")

_MONTH_END = "2025-02-28"
_NEXT_BILL = {"period_start": "2025-03-01", "period_end": "2025-03-31", "issue_date": "2025-03-01"}
_NEXT_BILL_DUE = "2025-03-15"


def _written(answer: Any) -> str:
    """As JSON, a blank between date and time. Of an answer that is no record, the numbers are texts."""
    return _TIME.sub(r"\1 \2", json.dumps(answer))


def get_customer_by_phone(state: State, phone_number: str) -> str:
    """A customer by contact number or line."""
    return _written(state.company.customer_with_phone(phone_number))


def get_customer_by_id(state: State, customer_id: str) -> str:
    """A customer by id."""
    return _written(state.company.customer(customer_id))


def get_customer_by_name(state: State, full_name: str, dob: str) -> str:
    """All customers of this name and birthday."""
    name = full_name.lower()
    customers = state.company.customers.values()
    return _written([each for each in customers if each["full_name"].lower() == name and each["date_of_birth"] == dob])


def get_details_by_id(state: State, id: str) -> str:
    """Any record; the first letter says of which table."""
    company = state.company
    tables = {"L": company.line, "D": company.device, "B": company.bill, "C": company.customer, "P": company.plan}
    if (find := tables.get(id[:1])) is None:
        raise Refusal(f"Unknown ID format or type: {id}")
    return _written(find(id))


def suspend_line(state: State, customer_id: str, line_id: str, reason: str) -> str:
    """Suspends an active line; the reason is not kept."""
    if state.company.owned_line(customer_id, line_id)["status"] != "Active":
        raise Refusal("Line must be active to suspend")
    line = state.company.change_line(line_id, status="Suspended", suspension_start_date=TODAY)
    return _written({"message": "Line suspended successfully. $5/month holding fee will apply.", "line": line})


def resume_line(state: State, customer_id: str, line_id: str) -> str:
    """Makes a suspended or new line active."""
    if state.company.owned_line(customer_id, line_id)["status"] not in ("Suspended", "Pending Activation"):
        raise Refusal("Line must be suspended to resume")
    line = state.company.change_line(line_id, status="Active", suspension_start_date=None)
    return _written({"message": "Line resumed successfully", "line": line})


def get_bills_for_customer(state: State, customer_id: str, limit: int = 12) -> str:
    """The newest bills first. A negative limit counts from the end, as upstream's slice does."""
    company = state.company
    bills = [company.bill(bill_id) for bill_id in company.customer(customer_id)["bill_ids"]]
    return _written(sorted(bills, key=lambda bill: bill["issue_date"], reverse=True)[:limit])


def send_payment_request(state: State, customer_id: str, bill_id: str) -> str:
    """Asks the user to pay a bill, whatever its status."""
    company = state.company
    customer = company.customer(customer_id)
    if company.awaiting_payment(customer):
        raise Refusal("A bill is already awaiting payment for this customer")
    if bill_id not in customer["bill_ids"]:
        raise Refusal(f"Bill {bill_id} not found for customer {customer_id}")
    company.change_bill(bill_id, status="Awaiting Payment")
    return f"Payment request sent to the customer for bill {bill_id}"


def get_data_usage(state: State, customer_id: str, line_id: str) -> str:
    """Data used, allowed and refuelled this month."""
    line = state.company.owned_line(customer_id, line_id)
    return _written(
        {
            "line_id": line_id,
            "data_used_gb": str(line["data_used_gb"]),
            "data_limit_gb": str(state.company.plan(line["plan_id"])["data_limit_gb"]),
            "data_refueling_gb": str(line["data_refueling_gb"]),
            "cycle_end_date": _MONTH_END,
        }
    )


def enable_roaming(state: State, customer_id: str, line_id: str) -> str:
    """Lets a line roam."""
    if state.company.owned_line(customer_id, line_id)["roaming_enabled"]:
        return "Roaming was already enabled"
    state.company.change_line(line_id, roaming_enabled=True)
    return "Roaming enabled successfully"


def disable_roaming(state: State, customer_id: str, line_id: str) -> str:
    """Keeps a line from roaming."""
    if not state.company.owned_line(customer_id, line_id)["roaming_enabled"]:
        return "Roaming was already disabled"
    state.company.change_line(line_id, roaming_enabled=False)
    return "Roaming disabled successfully"


def transfer_to_human_agents(state: State, summary: str) -> str:
    """Changes nothing; the environment ends the episode."""
    return "Transfer successful"


def refuel_data(state: State, customer_id: str, line_id: str, gb_amount: float) -> str:
    """Adds data to a line and its price to the customer's next bill."""
    line = state.company.owned_line(customer_id, line_id)
    if gb_amount <= 0:
        raise Refusal("Refuel amount must be positive")
    price = state.company.plan(line["plan_id"])["data_refueling_price_per_gb"]
    charge = gb_amount * price
    refuelled = line["data_refueling_gb"] + gb_amount
    state.company.change_line(line_id, data_refueling_gb=refuelled)
    state.company.charge(_draft_bill(state, customer_id), f"Data refueling: {gb_amount} GB at ${price}/GB", charge)
    message = f"Successfully added {gb_amount} GB of data for line {line_id} for ${charge:.2f}"
    return _written({"message": message, "new_data_refueling_gb": str(refuelled), "charge": str(charge)})


def _draft_bill(state: State, customer_id: str) -> str:
    """The id of the customer's draft, which is made where there is none. Upstream invents a random one then."""
    bills = state.company.customer(customer_id)["bill_ids"]
    for bill_id in bills:
        if state.company.bill(bill_id)["status"] == "Draft":
            return bill_id
    bill_id = f"B{zlib.crc32(f'{customer_id}/{len(bills)}'.encode()):08x}"
    state.company.add_bill(bill_id, customer_id, **_NEXT_BILL, total_due=0.0, due_date=_NEXT_BILL_DUE)
    return bill_id


WRITES = frozenset(
    {"suspend_line", "resume_line", "send_payment_request", "enable_roaming", "disable_roaming", "refuel_data"}
)
