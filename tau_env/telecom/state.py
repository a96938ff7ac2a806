"""The whole state of an attempt: the company, the phone, where it is; and what each learns of the other."""

from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from tau_env.telecom.company import Company, open_company
from tau_env.telecom.phone import SIGNALS, PaymentRequest, Phone, Surroundings, Vpn, open_phone

_PHONE = attrgetter(*Phone.__dataclass_fields__)
_SURROUNDINGS = attrgetter(*Surroundings.__dataclass_fields__)


@dataclass(slots=True)
class State:
    """Everything of one episode. Two states share only what nothing changes."""

    company: Company = field(default_factory=open_company)
    phone: Phone = field(default_factory=open_phone)
    surroundings: Surroundings = field(default_factory=Surroundings)
    usual_vpn: Vpn = Vpn()
    """What connecting connects to. Upstream has one such object for all episodes of a process, which a broken VPN
    breaks for all of them; here it stays broken for the rest of this episode only."""

    def search(self) -> None:
        """The phone looks for a network."""
        self.phone.search(self.surroundings)

    def synchronise(self) -> None:
        """Tells the phone about its line, and the company about what the user paid. Belongs after every write."""
        around, company = self.surroundings, self.company
        if around.phone_number is None:
            return
        line = company.line_with_phone(around.phone_number)
        around.line_active = line["status"] == "Active"
        around.roaming_allowed = line["roaming_enabled"]
        limit = company.find("plans", line["plan_id"])["data_limit_gb"] + line["data_refueling_gb"]
        around.mobile_data_usage_exceeded = line["data_used_gb"] >= limit
        if around.payment_request is not None and around.payment_request.paid:
            company.change("bills", around.payment_request.bill_id, status="Paid")
            around.payment_request = None
        if around.payment_request is None:
            for bill in company.awaiting_payment(company.customer_with_phone(around.phone_number))[:1]:
                around.payment_request = PaymentRequest(bill["bill_id"], bill["total_due"])

    def mark(self) -> tuple[Any, ...]:
        """A value that stays as it is: equal marks mean that nothing changed in between."""
        return self.company.tables, _PHONE(self.phone), _SURROUNDINGS(self.surroundings)

    def dump(self) -> dict[str, Any]:
        """All of it in JSON values, named as in upstream's two databases."""
        around = {**asdict(self.surroundings), "signal_strength": SIGNALS}
        company = {name: list(table.values()) for name, table in self.company.tables.items()}
        return {"agent": company, "user": {"device": self.phone.dump(), "surroundings": around}}
