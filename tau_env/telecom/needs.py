"""Which writes a task's faults need. The official reward lets all others pass; a clean attempt makes none.

The table was derived from gold over all tasks, where each fault has the same fixes in every task that can be solved.
Two faults have none: the agent transfers, and what it repairs before that (other faults of the task) is not held
against it. A fix stands as often as it may be made; `needless` says how that is counted.
"""

from collections.abc import Mapping, Sequence

from interaction.call import Call
from tau_env.domain import Side, Task, Write
from tau_env.telecom.tasks import faults

LINE = {"customer_id": "C1001", "line_id": "L1002"}
"""Customer and line of all tickets."""


def _user(name: str, **arguments: str) -> Write:
    return "user", Call(name, arguments)


_RESET_APN = (_user("reset_apn_settings"), _user("reboot_device"))
_ROAMING_LINE: Write = ("agent", Call("enable_roaming", LINE))
_MODE, _MODES = "set_network_mode_preference", ("4g_5g_preferred", "4g_only", "3g_only")
"""The policy lets the agent choose; whether the choice does is for the task's assertions."""
_SMS = _user("grant_app_permission", app_name="messaging", permission="sms")
_STORAGE = _user("grant_app_permission", app_name="messaging", permission="storage")

FIXES: Mapping[str, tuple[Write, ...]] = {
    "airplane_mode_on": (_user("toggle_airplane_mode"),),
    "bad_network_preference": (_user("set_network_mode_preference", mode="4g_5g_preferred"),),
    "bad_vpn": (_user("disconnect_vpn"),),
    "bad_wifi_calling": (_user("toggle_wifi_calling"),),
    "break_apn_mms_setting": _RESET_APN,
    "break_apn_settings": _RESET_APN,
    "break_app_both_permissions": (_SMS, _STORAGE),
    "break_app_sms_permission": (_SMS,),
    "break_app_storage_permission": (_STORAGE,),
    "contract_end_suspension": (),
    "data_mode_off": (_user("toggle_data"),),
    "data_saver_mode_on": (_user("toggle_data_saver_mode"),),
    "data_usage_exceeded": (("agent", Call("refuel_data", {**LINE, "gb_amount": 2.0})),),
    "lock_sim_card_pin": (),
    "overdue_bill_suspension": (
        ("agent", Call("send_payment_request", {"customer_id": "C1001", "bill_id": "B1234321"})),
        _user("make_payment"),
        ("agent", Call("resume_line", LINE)),
        _user("reboot_device"),
    ),
    "unseat_sim_card": (_user("reseat_sim_card"),),
    "user_abroad_roaming_disabled_off": (_ROAMING_LINE, _user("toggle_roaming")),
    "user_abroad_roaming_disabled_on": (_ROAMING_LINE,),
    "user_abroad_roaming_enabled_off": (_user("toggle_roaming"),),
}


def needed(task: Task) -> tuple[Write, ...]:
    """The fixes of all faults in the task's id, a reboot as often as faults ask for one.

    Raises:
        KeyError: the id names a fault that upstream's tasks of this release do not have.
    """
    return tuple(fix for fault in faults(task) for fix in FIXES[fault])


def needless(task: Task, written: Sequence[Write]) -> tuple[Write, ...]:
    """The writes of an attempt that its task did not need, in order.

    Each needed write may be made once (as often as it is listed); a second toggle is one too many, and the third as
    well. Data may be refuelled in parts, as long as their sum is at most the amount that is listed. A call that changed
    nothing is no write, so that a reboot too many counts only where it does something.
    """
    left = [(side, call.name, dict(call.arguments)) for side, call in needed(task)]
    return tuple(write for write in written if not _spend(left, write))


def _spend(left: list[tuple[Side, str, dict[str, object]]], write: Write) -> bool:
    """Whether the write is among what is left, which then is less."""
    side, call = write
    for item in left:
        if item[:2] != (side, call.name):
            continue
        if item[2] == call.arguments or (call.name == _MODE and call.arguments["mode"] in _MODES):
            left.remove(item)
            return True
        if call.name == "refuel_data" and _draw(item[2], call.arguments):
            return True
    return False


def _draw(budget: dict[str, object], wanted: Mapping[str, object]) -> bool:
    """Takes a part of the data that may be refuelled."""
    have, amount = budget["gb_amount"], wanted["gb_amount"]
    assert isinstance(have, int | float) and isinstance(amount, int | float)
    if {**budget, "gb_amount": 0} != {**wanted, "gb_amount": 0} or amount > have + 1e-9:  # parts of it add up roughly
        return False
    budget["gb_amount"] = have - amount
    return True
