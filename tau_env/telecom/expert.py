"""An expert who looks before he repairs: conversations to learn from, in mode solo.

Gold's calls follow from the faults, which the ticket does not name, so a model cannot learn from them when to call
what. This one reads what phone and line say, repairs what is wrong and nothing else, checks, and ends. It passes every
task, cleanly. Its ids are those of the one customer whom all of telecom's tickets are about.
"""

import json

from interaction.call import Call
from tau_env.domain import Side, Task
from tau_env.telecom.company import TODAY
from tau_env.telecom.database import TelecomDatabase, open_database
from tau_env.telecom.needs import LINE

_GB = 2.0
"""What every customer is willing to pay for."""


class _Attempt:
    """Calls, and what they say."""

    def __init__(self, database: TelecomDatabase) -> None:
        self.calls: list[Call] = []
        self._database = database

    def phone(self, name: str, **arguments: object) -> str:
        return self._call("user", Call(name, dict(arguments)))

    def company(self, name: str, **arguments: object) -> str:
        return self._call("agent", Call(name, dict(arguments)))

    def _call(self, side: Side, call: Call) -> str:
        self.calls.append(call)
        return self._database.call(call, side).text


def play(task: Task) -> tuple[Call, ...]:
    """The calls of the conversation; the last one ends it."""
    attempt = _Attempt(open_database(task))
    if _repaired(attempt, task):
        attempt.calls.append(Call("done", {}))
    else:
        summary = "The problem cannot be solved by technical support."
        attempt.calls.append(Call("transfer_to_human_agents", {"summary": summary}))
    return tuple(attempt.calls)


def _repaired(attempt: _Attempt, task: Task) -> bool:
    """Whether the problem could be solved; if not, a person has to."""
    status = attempt.phone("check_network_status")
    if "Airplane Mode: ON" in status:
        attempt.phone("toggle_airplane_mode")
    if "SIM Card Status: missing" in status:
        status += attempt.phone("reseat_sim_card") + attempt.phone("check_sim_status")
    if "locked" in status:
        return False
    if task.category == "telecom_service":
        return _service(attempt)
    _data(attempt, status, abroad="abroad" in task.ticket)
    if task.category == "telecom_mms":
        _messages(attempt)
    else:
        attempt.phone("run_speed_test")
    return True


def _service(attempt: _Attempt) -> bool:
    if "broken" in attempt.phone("check_apn_settings"):
        attempt.phone("reset_apn_settings")
        attempt.phone("reboot_device")
    line = json.loads(attempt.company("get_details_by_id", id=LINE["line_id"]))
    if line["status"] == "Suspended":
        if line["contract_end_date"] < TODAY:
            return False
        _pay(attempt)
    attempt.phone("check_network_status")
    return True


def _pay(attempt: _Attempt) -> None:
    """What is overdue is paid, then the line works again."""
    bills = json.loads(attempt.company("get_bills_for_customer", customer_id=LINE["customer_id"]))
    for bill in bills:
        if bill["status"] == "Overdue":
            attempt.company("send_payment_request", customer_id=LINE["customer_id"], bill_id=bill["bill_id"])
            attempt.phone("make_payment")
    attempt.company("resume_line", **LINE)
    attempt.phone("reboot_device")


def _data(attempt: _Attempt, status: str, abroad: bool) -> None:
    if "Mobile Data Enabled: No" in status:
        attempt.phone("toggle_data")
    icons = attempt.phone("check_status_bar")
    if "| 2G |" in icons:
        attempt.phone("set_network_mode_preference", mode="4g_5g_preferred")
    if "Data Saver" in icons:
        attempt.phone("toggle_data_saver_mode")
    if "VPN Connected" in icons:
        attempt.phone("disconnect_vpn")
    if abroad:
        if "Data Roaming Enabled: No" in status:
            attempt.phone("toggle_roaming")
        if not json.loads(attempt.company("get_details_by_id", id=LINE["line_id"]))["roaming_enabled"]:
            attempt.company("enable_roaming", **LINE)
    usage = json.loads(attempt.company("get_data_usage", **LINE))
    if float(usage["data_used_gb"]) >= float(usage["data_limit_gb"]) + float(usage["data_refueling_gb"]):
        attempt.company("refuel_data", **LINE, gb_amount=_GB)


def _messages(attempt: _Attempt) -> None:
    if "ON" in attempt.phone("check_wifi_calling_status"):
        attempt.phone("toggle_wifi_calling")
    if "Not Set" in attempt.phone("check_apn_settings"):
        attempt.phone("reset_apn_settings")
        attempt.phone("reboot_device")
    granted = attempt.phone("check_app_permissions", app_name="messaging")
    for permission in ("sms", "storage"):
        if permission not in granted:
            attempt.phone("grant_app_permission", app_name="messaging", permission=permission)
    attempt.phone("can_send_mms")
