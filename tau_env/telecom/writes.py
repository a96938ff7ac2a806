"""What the agent changes at the company and the user on the phone, worded as tau2-bench words it.

Each takes the state and arguments that fit its documentation, and returns a text or raises `Refused`. Where the phone's
text says no (an unknown mode, app or permission, Wi-Fi in airplane mode) it is raised as `SaysNo`, so that the call is
seen to have failed; the state is then as it was.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tau_env.attempt import Refused, SaysNo, Unfit
from tau_env.telecom.company import TODAY
from tau_env.telecom.phone import MODES, PERMISSIONS, Apn, on
from tau_env.telecom.reads import written
from tau_env.telecom.state import State

_NEXT_BILL = {
    "period_start": "2025-03-01",
    "period_end": "2025-03-31",
    "issue_date": "2025-03-01",
    "due_date": "2025-03-15",
    "status": "Draft",
}
_APN = TypeAdapter(Apn)


def suspend_line(state: State, customer_id: str, line_id: str, reason: str) -> str:
    """Suspends an active line; the reason is not kept."""
    if state.company.owned_line(customer_id, line_id)["status"] != "Active":
        raise Refused("Line must be active to suspend")
    line = state.company.change("lines", line_id, status="Suspended", suspension_start_date=TODAY)
    return written({"message": "Line suspended successfully. $5/month holding fee will apply.", "line": line})


def resume_line(state: State, customer_id: str, line_id: str) -> str:
    """Makes a suspended or new line active."""
    if state.company.owned_line(customer_id, line_id)["status"] not in ("Suspended", "Pending Activation"):
        raise Refused("Line must be suspended to resume")
    line = state.company.change("lines", line_id, status="Active", suspension_start_date=None)
    return written({"message": "Line resumed successfully", "line": line})


def send_payment_request(state: State, customer_id: str, bill_id: str) -> str:
    """Asks the user to pay a bill, whatever its status."""
    company = state.company
    customer = company.find("customers", customer_id)
    if company.awaiting_payment(customer):
        raise Refused("A bill is already awaiting payment for this customer")
    if bill_id not in customer["bill_ids"]:
        raise Refused(f"Bill {bill_id} not found for customer {customer_id}")
    company.change("bills", bill_id, status="Awaiting Payment")
    return f"Payment request sent to the customer for bill {bill_id}"


def enable_roaming(state: State, customer_id: str, line_id: str) -> str:
    """Lets a line roam."""
    return _set_roaming(state, customer_id, line_id, True)


def disable_roaming(state: State, customer_id: str, line_id: str) -> str:
    """Keeps a line from roaming."""
    return _set_roaming(state, customer_id, line_id, False)


def _set_roaming(state: State, customer_id: str, line_id: str, allowed: bool) -> str:
    word = "enabled" if allowed else "disabled"
    if state.company.owned_line(customer_id, line_id)["roaming_enabled"] == allowed:
        return f"Roaming was already {word}"
    state.company.change("lines", line_id, roaming_enabled=allowed)
    return f"Roaming {word} successfully"


def refuel_data(state: State, customer_id: str, line_id: str, gb_amount: float) -> str:
    """Adds data to a line and its price to the customer's next bill."""
    line = state.company.owned_line(customer_id, line_id)
    if gb_amount <= 0:
        raise Refused("Refuel amount must be positive")
    price = state.company.find("plans", line["plan_id"])["data_refueling_price_per_gb"]
    charge = gb_amount * price
    refuelled = line["data_refueling_gb"] + gb_amount
    state.company.change("lines", line_id, data_refueling_gb=refuelled)
    state.company.charge(_draft_bill(state, customer_id), f"Data refueling: {gb_amount} GB at ${price}/GB", charge)
    message = f"Successfully added {gb_amount} GB of data for line {line_id} for ${charge:.2f}"
    return written({"message": message, "new_data_refueling_gb": str(refuelled), "charge": str(charge)})


def _draft_bill(state: State, customer_id: str) -> str:
    """The id of the customer's draft, which is made where there is none. Upstream invents a random one then."""
    bills = state.company.find("customers", customer_id)["bill_ids"]
    for bill_id in bills:
        if state.company.find("bills", bill_id)["status"] == "Draft":
            return bill_id
    bill_id = f"B{zlib.crc32(f'{customer_id}/{len(bills)}'.encode()):08x}"
    state.company.add_bill(bill_id, customer_id, **_NEXT_BILL)
    return bill_id


def _with_bar(state: State, text: str) -> str:
    return f"{text}\n{state.phone.status_bar()}"


def set_network_mode_preference(state: State, mode: str) -> str:
    """Changes them, and looks for a network."""
    if mode not in MODES:
        words = f"Failed to set network mode: '{mode}' is not a valid option. Please use one of: {', '.join(MODES)}"
        raise SaysNo(_with_bar(state, words))
    state.phone.network_mode_preference = mode
    state.search()
    return _with_bar(state, f"Preferred Network Mode set to: {mode}")


def toggle_airplane_mode(state: State) -> str:
    """Switches airplane mode."""
    phone = state.phone
    phone.set_airplane_mode(not phone.airplane_mode, state.surroundings)
    return _with_bar(state, f"Airplane Mode is now {on(phone.airplane_mode)}.")


def reseat_sim_card(state: State) -> str:
    """Puts the card back; no help against a lock."""
    state.phone.sim_card_missing = False
    state.search()
    return _with_bar(state, "SIM card re-seated successfully.")


def toggle_data(state: State) -> str:
    """Switches mobile data, and looks for a network."""
    state.phone.data_enabled = not state.phone.data_enabled
    state.search()
    return _with_bar(state, f"Mobile Data is now {on(state.phone.data_enabled)}.")


def toggle_roaming(state: State) -> str:
    """Switches roaming, and looks for a network."""
    state.phone.roaming_enabled = not state.phone.roaming_enabled
    state.search()
    return _with_bar(state, f"Data Roaming is now {on(state.phone.roaming_enabled)}.")


def toggle_data_saver_mode(state: State) -> str:
    """Switches the data saver."""
    state.phone.data_saver_mode = not state.phone.data_saver_mode
    return _with_bar(state, f"Data Saver Mode is now {on(state.phone.data_saver_mode)}.")


def set_apn_settings(state: State, apn_settings: Mapping[Any, Any]) -> str:
    """Replaces all of them: what is not given becomes the default. As pydantic reads them for upstream: "80" is a port.

    Raises:
        Unfit: a value does not fit its field.
    """
    if not all(isinstance(key, str) for key in apn_settings):
        raise Unfit("set_apn_settings: the keys of apn_settings must be texts")
    try:
        state.phone.active_apn_settings = apn = _APN.validate_python(dict(apn_settings))
    except ValidationError as error:
        raise Unfit(f"set_apn_settings: {error.errors()[0]['loc'][0]} does not fit") from error
    state.search()
    return _with_bar(state, f"APN settings set to: {apn.apn_name}")


def reset_apn_settings(state: State) -> str:
    """Notes that the next reboot shall restore the defaults."""
    state.phone.active_apn_settings = replace(state.phone.active_apn_settings, reset_at_reboot=True)
    state.search()
    return _with_bar(state, "APN settings will reset at reboot.")


def toggle_wifi(state: State) -> str:
    """Switches the radio, unless in airplane mode."""
    phone = state.phone
    if phone.airplane_mode:
        raise SaysNo(_with_bar(state, "Cannot change Wi-Fi settings while Airplane Mode is ON."))
    phone.wifi_enabled = not phone.wifi_enabled
    if not phone.wifi_enabled:
        phone.drop_wifi()
    return _with_bar(state, f"Wi-Fi is now {on(phone.wifi_enabled)}.")


def toggle_wifi_calling(state: State) -> str:
    """Switches that."""
    state.phone.wifi_calling_enabled = not state.phone.wifi_calling_enabled
    return _with_bar(state, f"Wi-Fi Calling is now {on(state.phone.wifi_calling_enabled)}.")


def connect_vpn(state: State) -> str:
    """Connects to the usual server."""
    if state.phone.vpn_connected:
        return "VPN already connected."
    state.phone.vpn_connected, state.phone.vpn_details = True, state.usual_vpn
    return _with_bar(state, "VPN connected successfully.")


def disconnect_vpn(state: State) -> str:
    """Ends the connection, if there is one."""
    ended = state.phone.disconnect_vpn()
    return _with_bar(state, "VPN disconnected successfully." if ended else "No active VPN connection to disconnect.")


def grant_app_permission(state: State, app_name: str, permission: str) -> str:
    """Allows an app one thing more."""
    apps, permission = state.phone.app_statuses, permission.lower()
    if app_name not in apps:
        raise SaysNo(_with_bar(state, f"Error. App '{app_name}' not found. Cannot grant permission."))
    if permission not in PERMISSIONS:
        words = f"Permission '{permission}' not tracked for app '{app_name}', available permissions: {[*PERMISSIONS]}"
        raise SaysNo(_with_bar(state, f"Error. {words}"))
    state.phone.app_statuses = {**apps, app_name: apps[app_name] | {permission}}
    return _with_bar(state, f"Success. Permission '{permission}' granted to app '{app_name}'.")


def reboot_device(state: State) -> str:
    """Restores the access point if that was asked for, and looks for a network."""
    lines = []
    if state.phone.active_apn_settings.reset_at_reboot:
        lines.append("Resetting APN settings...")
        state.phone.active_apn_settings = Apn()
    lines.append("Restarting network services...")
    state.search()
    return _with_bar(state, "\n".join(lines))


def make_payment(state: State) -> str:
    """Pays it; the company hears of it when the two are synchronised."""
    if (request := state.surroundings.payment_request) is None:
        return "You do not have a payment request."
    state.surroundings.payment_request = replace(request, paid=True)
    return f"Payment of {request.amount_due} USD has been made for bill {request.bill_id}."
