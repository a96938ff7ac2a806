"""What the agent looks up at the company and the user on the phone, worded as tau2-bench words it.

Each takes the state and arguments that fit its documentation, and returns a text or raises `Refused`.
"""

import json
import re
from typing import Any

from tau_env.attempt import Refused, SaysNo
from tau_env.telecom.phone import PERMISSIONS, on
from tau_env.telecom.state import State

_TIME = re.compile(r"(-\d\d)T(\d\d:)")
_TABLES = {"L": "lines", "D": "devices", "B": "bills", "C": "customers", "P": "plans"}
_MONTH_END = "2025-02-28"

_SIM = {
    "active": "Your SIM card is active and working.",
    "missing": "No SIM card detected in the phone.",
    "locked_pin": "The SIM card is locked with a PIN code.",
    "locked_puk": "The SIM card is locked with a PUK code.",
}
_ADVICE = {
    "Very Poor": "Connection is very slow. Basic web browsing might be difficult.",
    "Poor": "Connection is slow. Web browsing may be sluggish, streaming difficult.",
    "Fair": "Connection is okay for web browsing and some standard definition streaming.",
    "Good": "Connection is good for most activities, including HD streaming.",
    "Excellent": "Connection is very fast.",
}


def written(answer: Any) -> str:
    """As JSON, a blank between date and time. Of an answer that is no record, the numbers are texts."""
    return _TIME.sub(r"\1 \2", json.dumps(answer))


def get_customer_by_phone(state: State, phone_number: str) -> str:
    """A customer by contact number or line."""
    return written(state.company.customer_with_phone(phone_number))


def get_customer_by_id(state: State, customer_id: str) -> str:
    """A customer by id."""
    return written(state.company.find("customers", customer_id))


def get_customer_by_name(state: State, full_name: str, dob: str) -> str:
    """All customers of this name and birthday."""
    name = full_name.lower()
    customers = state.company.tables["customers"].values()
    return written([each for each in customers if each["full_name"].lower() == name and each["date_of_birth"] == dob])


def get_details_by_id(state: State, id: str) -> str:
    """Any record; the first letter says of which table."""
    if (table := _TABLES.get(id[:1])) is None:
        raise Refused(f"Unknown ID format or type: {id}")
    return written(state.company.find(table, id))


def get_bills_for_customer(state: State, customer_id: str, limit: int = 12) -> str:
    """The newest bills first. A negative limit counts from the end, as upstream's slice does."""
    company = state.company
    bills = [company.find("bills", bill_id) for bill_id in company.find("customers", customer_id)["bill_ids"]]
    return written(sorted(bills, key=lambda bill: bill["issue_date"], reverse=True)[:limit])


def get_data_usage(state: State, customer_id: str, line_id: str) -> str:
    """Data used, allowed and refuelled this month."""
    line = state.company.owned_line(customer_id, line_id)
    return written(
        {
            "line_id": line_id,
            "data_used_gb": str(line["data_used_gb"]),
            "data_limit_gb": str(state.company.find("plans", line["plan_id"])["data_limit_gb"]),
            "data_refueling_gb": str(line["data_refueling_gb"]),
            "cycle_end_date": _MONTH_END,
        }
    )


def _yes(value: bool) -> str:
    return "Yes" if value else "No"


def check_status_bar(state: State) -> str:
    """The icons at the top."""
    return state.phone.status_bar()


def check_network_status(state: State) -> str:
    """Nine settings and readings of the connection."""
    phone = state.phone
    lines = [
        f"Airplane Mode: {on(phone.airplane_mode)}",
        f"SIM Card Status: {phone.sim_status}",
        f"Cellular Connection: {phone.network_connection_status}",
        f"Cellular Signal: {phone.network_signal_strength}",
        f"Cellular Network Type: {phone.network_technology_connected}",
        f"Mobile Data Enabled: {_yes(phone.data_enabled)}",
        f"Data Roaming Enabled: {_yes(phone.roaming_enabled)}",
        f"Wi-Fi Radio: {on(phone.wifi_enabled)}",
        f"Wi-Fi Connected: {_yes(phone.wifi_connected)}",
    ]
    if phone.wifi_connected:
        lines.append(f"Connected Wi-Fi Network: {phone.wifi_ssid}")
    return "\n".join(lines)


def check_network_mode_preference(state: State) -> str:
    """Which networks the phone may use."""
    return f"Network Mode Preference: {state.phone.network_mode_preference}"


def run_speed_test(state: State) -> str:
    """The speed of mobile data, if there is any."""
    measured = state.phone.speed(state.surroundings)
    if measured is None:
        return "Speed test failed: No Connection."
    speed, grade = measured
    return f"Speed Test Result: {speed:.2f} Mbps ({grade}). {_ADVICE[grade]}"


def check_sim_status(state: State) -> str:
    """Whether the card works."""
    return _SIM[state.phone.sim_status]


def check_data_restriction_status(state: State) -> str:
    """Whether the data saver is on."""
    return "Data Saver mode is ON (limits data usage)." if state.phone.data_saver_mode else "Data Saver mode is OFF."


def check_apn_settings(state: State) -> str:
    """Two of the access point's settings."""
    apn = state.phone.active_apn_settings
    return (
        f"Current APN Name: {apn.apn_name}\nMMSC URL (for picture messages): {apn.mmsc_url or 'Not Set'}\n"
        "(These are technical settings, usually best left unchanged.)"
    )


def check_wifi_status(state: State) -> str:
    """The Wi-Fi radio."""
    phone = state.phone
    if not phone.wifi_enabled:
        return "Wi-Fi is turned OFF."
    if phone.wifi_connected:
        return f"Wi-Fi is ON and connected to '{phone.wifi_ssid}'. Signal strength: {phone.wifi_signal_strength}."
    return "Wi-Fi is ON but not connected to any network."


def check_wifi_calling_status(state: State) -> str:
    """Whether calls go over Wi-Fi."""
    return f"Wi-Fi Calling is currently turned {on(state.phone.wifi_calling_enabled)}."


def check_vpn_status(state: State) -> str:
    """The VPN, with details as Python prints upstream's objects."""
    vpn = state.phone.vpn_details
    if vpn is None:
        wanted = state.phone.vpn_enabled_setting
        return f"VPN is turned {'ON in settings, but currently not connected' if wanted else 'OFF'}."
    level = vpn.server_performance
    return (
        f"VPN is ON and connected. Details: {{'server_address': {vpn.server_address!r}, 'protocol': {vpn.protocol!r}, "
        f"'server_performance': <PerformanceLevel.{level.upper()}: {level!r}>}}"
    )


def check_installed_apps(state: State) -> str:
    """The names of all apps."""
    return f"The following apps are installed on the phone: {', '.join(state.phone.app_statuses)}"


def _permissions(state: State, app_name: str) -> list[str]:
    if (allowed := state.phone.app_statuses.get(app_name)) is None:
        raise SaysNo(f"App '{app_name}' not found on this phone.")
    return [each for each in PERMISSIONS if each in allowed]


def check_app_status(state: State, app_name: str) -> str:
    """What an app is allowed, one to a line."""
    allowed = _permissions(state, app_name)
    lines = [" - Permissions Granted:", *(f"   - {each}" for each in allowed)]
    return "\n".join([f"Status for App: {app_name}", *(lines if allowed else [" - Permissions: None granted."])])


def check_app_permissions(state: State, app_name: str) -> str:
    """The same in one line."""
    if allowed := _permissions(state, app_name):
        return f"App '{app_name}' has permission for: {', '.join(allowed)}."
    return f"App '{app_name}' currently has no permissions granted."


def can_send_mms(state: State) -> str:
    """Whether pictures can be sent."""
    able = "can" if state.phone.can_send_mms(state.surroundings) else "cannot"
    return f"Your messaging app {able} send MMS messages."


def check_payment_request(state: State) -> str:
    """The bill that is to be paid."""
    if (request := state.surroundings.payment_request) is None:
        return "No payment request has been made."
    return f"You have a payment request for bill {request.bill_id} of {request.amount_due} USD."
