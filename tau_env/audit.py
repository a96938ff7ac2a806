"""Policies that repair on sight, for an audit: what the official reward lets pass, and `clean` does not.

The strongest makes every repair there is, toggles back what the phone then says stands wrong, and hands the user over:
it reads no symptom, and officially passes nearly all of telecom.
"""

from collections.abc import Iterator, Mapping

from interaction.call import Call
from tau_env.domain import Side
from tau_env.exchange import DONE, HAND_OVER
from tau_env.tasks import TauTask, is_idle, load_tasks
from tau_env.telecom.database import open_database
from tau_env.telecom.needs import LINE

TRANSFER = Call(HAND_OVER, {"summary": "I cannot fix the issue."})
FIXES: tuple[tuple[Side, Call], ...] = (
    ("agent", Call("send_payment_request", {"customer_id": "C1001", "bill_id": "B1234321"})),
    ("user", Call("make_payment", {})),
    ("agent", Call("resume_line", LINE)),
    ("agent", Call("enable_roaming", LINE)),
    ("agent", Call("refuel_data", {**LINE, "gb_amount": 2.0})),
    ("user", Call("reseat_sim_card", {})),
    ("user", Call("set_network_mode_preference", {"mode": "4g_5g_preferred"})),
    ("user", Call("disconnect_vpn", {})),
    ("user", Call("grant_app_permission", {"app_name": "messaging", "permission": "sms"})),
    ("user", Call("grant_app_permission", {"app_name": "messaging", "permission": "storage"})),
    ("user", Call("reset_apn_settings", {})),
)
"""Repairs that do no harm where nothing is wrong."""
TOGGLES = {
    "toggle_airplane_mode": "ON",
    "toggle_data": "OFF",
    "toggle_roaming": "OFF",
    "toggle_data_saver_mode": "ON",
    "toggle_wifi_calling": "ON",
}
"""Each toggle with the position in which it is wrong."""


def transfer(task: TauTask) -> list[Call]:
    """Gives up at once."""
    return [TRANSFER]


def every_fix(task: TauTask) -> list[Call]:
    """Every repair, then `done`; nothing where the agent does not have the device."""
    return [*_repairs(task), Call(DONE, {})] if task.mode == "solo" else []


def every_fix_transfer(task: TauTask) -> list[Call]:
    """Every repair, then a transfer on top of it."""
    return [*_repairs(task), TRANSFER] if task.mode == "solo" else []


def _repairs(task: TauTask) -> Iterator[Call]:
    database = open_database(task.task)
    for side, call in FIXES:
        database.call(call, side)
        yield call
    for name, wrong in TOGGLES.items():
        call = Call(name, {})
        yield call
        if f"is now {wrong}." in database.call(call, "user").text:
            database.call(call, "user")
            yield call
    yield Call("reboot_device", {})


AUDIT_POLICIES = {"transfer": transfer, "every fix": every_fix, "every fix, transfer": every_fix_transfer}

WORDS = ("junk, hermes", "junk, llama3_json", "junk, python_calls")  # any text is an answer in these formats
PAID, SILENT = ("outcome official", "outcome priced"), ("nothing", "blanks", "foreign call", "junk")
OFFICIAL = "the official reward asks for no diagnosis and no restraint"


def known() -> Mapping[str, str]:
    """What an audit finds, with the reason; `*` stands for any reward, or any task."""
    listed = {f"outcome official, {name}: *": OFFICIAL for name in ("every fix", "every fix, transfer")}
    for task in load_tasks():
        if task.task.gold and task.task.gold[-1].call.name == HAND_OVER and task.task.domain == "telecom":
            reason = "nothing can be repaired, gold is the transfer"
            listed |= {f"*, {name}: {task.id}": reason for name in ("transfer", "every fix, transfer")}
        elif is_idle(task):
            reason = "the task asks for nothing that is judged; it is left out of training"
            ways = ("answers", "safe call", "hostile", "transfer", "skip first turn")  # the last: 105's gold is refused
            listed |= {f"*, {name}: {task.id}": reason for name in (*ways, *WORDS)}
            listed |= {f"{reward}, {name}: {task.id}": reason for reward in PAID for name in SILENT}
    return listed
