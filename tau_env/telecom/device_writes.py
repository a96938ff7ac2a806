"""What the user can do on the phone: fifteen functions, worded as upstream words them.

Each takes the state and arguments that fit its documentation, and returns a text. Where upstream's text says no (an
unknown mode, app or permission, Wi-Fi in airplane mode) it is raised as `SaysNo`, so that the call is seen to have
failed; the phone is then as it was.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tau_env.telecom.arguments import read_apn
from tau_env.telecom.company import SaysNo
from tau_env.telecom.phone import MODES, PERMISSIONS, Apn
from tau_env.telecom.state import State


def _on(value: bool) -> str:
    return "ON" if value else "OFF"


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
    return _with_bar(state, f"Airplane Mode is now {_on(phone.airplane_mode)}.")


def reseat_sim_card(state: State) -> str:
    """Puts the card back; no help against a lock."""
    state.phone.sim_card_missing = False
    state.search()
    return _with_bar(state, "SIM card re-seated successfully.")


def toggle_data(state: State) -> str:
    """Switches mobile data, and looks for a network."""
    state.phone.data_enabled = not state.phone.data_enabled
    state.search()
    return _with_bar(state, f"Mobile Data is now {_on(state.phone.data_enabled)}.")


def toggle_roaming(state: State) -> str:
    """Switches roaming, and looks for a network."""
    state.phone.roaming_enabled = not state.phone.roaming_enabled
    state.search()
    return _with_bar(state, f"Data Roaming is now {_on(state.phone.roaming_enabled)}.")


def toggle_data_saver_mode(state: State) -> str:
    """Switches the data saver."""
    state.phone.data_saver_mode = not state.phone.data_saver_mode
    return _with_bar(state, f"Data Saver Mode is now {_on(state.phone.data_saver_mode)}.")


def set_apn_settings(state: State, apn_settings: Mapping[Any, Any]) -> str:
    """Replaces all of them: what is not given becomes the default."""
    state.phone.active_apn_settings = apn = read_apn(apn_settings)
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
    return _with_bar(state, f"Wi-Fi is now {_on(phone.wifi_enabled)}.")


def toggle_wifi_calling(state: State) -> str:
    """Switches that."""
    state.phone.wifi_calling_enabled = not state.phone.wifi_calling_enabled
    return _with_bar(state, f"Wi-Fi Calling is now {_on(state.phone.wifi_calling_enabled)}.")


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
