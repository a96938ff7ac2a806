"""What happened before the conversation: the twenty functions that a task's files call to break things.

Upstream's are methods beside the tools; the tasks name them. Switches are set here instead of toggled until they stand
right, which comes to the same state.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tau_env.domain import Action
from tau_env.telecom import writes
from tau_env.telecom.company import TODAY
from tau_env.telecom.state import State

_OVERDUE_BILL = {
    "period_start": "2025-01-01",
    "period_end": "2025-01-31",
    "issue_date": "2025-01-01",
    "due_date": "2025-01-15",
    "status": "Overdue",
}


_SWITCHES: Mapping[str, dict[str, bool]] = {
    "turn_data_off": {"data_enabled": False},
    "turn_roaming_on": {"roaming_enabled": True},
    "turn_roaming_off": {"roaming_enabled": False},
    "unseat_sim_card": {"sim_card_missing": True},
}
"""Function -> what it sets on the phone, which then searches for a network."""


def _set_user_info(state: State, name: str, phone_number: str) -> None:
    state.surroundings.name, state.surroundings.phone_number = name, phone_number


def _set_user_location(state: State, abroad: bool) -> None:
    state.surroundings.is_abroad = abroad


def _turn_airplane_mode_on(state: State) -> None:
    state.phone.set_airplane_mode(True, state.surroundings)


def _turn_data_saver_mode_on(state: State) -> None:
    state.phone.data_saver_mode = True


def _set_wifi_calling(state: State, enabled: bool, mms_over_wifi: bool | None = None) -> None:
    state.phone.wifi_calling_enabled = enabled
    if mms_over_wifi is not None:
        state.phone.wifi_calling_mms_over_wifi = mms_over_wifi


def _lock_sim_card(state: State, mode: str) -> None:
    state.phone.sim_card_status = f"locked_{mode}"
    state.search()


def _break_apn_settings(state: State) -> None:
    state.phone.active_apn_settings = replace(state.phone.active_apn_settings, apn_name="broken")
    state.search()


def _break_apn_mms_setting(state: State) -> None:
    state.phone.active_apn_settings = replace(state.phone.active_apn_settings, mmsc_url=None)


def _remove_app_permission(state: State, app_name: str, permission: str) -> None:
    apps = state.phone.app_statuses
    if app_name in apps:
        state.phone.app_statuses = {**apps, app_name: apps[app_name] - {permission.lower()}}


def _break_vpn(state: State) -> None:
    state.phone.disconnect_vpn()
    state.usual_vpn = replace(state.usual_vpn, server_performance="poor")
    writes.connect_vpn(state)


def _set_data_usage(state: State, customer_id: str, line_id: str, data_used_gb: float) -> None:
    state.company.change("lines", line_id, data_used_gb=data_used_gb)


def _suspend_line_for_overdue_bill(
    state: State, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
) -> None:
    company = state.company
    plan = company.find("plans", company.find("lines", line_id)["plan_id"])
    company.add_bill(new_bill_id, customer_id, **_OVERDUE_BILL)
    company.charge(new_bill_id, f"Charge for line {line_id}", plan["price_per_month"])
    ended = {"contract_end_date": _OVERDUE_BILL["period_end"]} if contract_ended else {}
    company.change("lines", line_id, status="Suspended", suspension_start_date=TODAY, **ended)


_SETUP: Mapping[str, Callable[..., object]] = {
    "set_user_info": _set_user_info,
    "set_user_location": _set_user_location,
    "simulate_network_search": State.search,
    "set_network_mode_preference": writes.set_network_mode_preference,
    "turn_airplane_mode_on": _turn_airplane_mode_on,
    "turn_data_saver_mode_on": _turn_data_saver_mode_on,
    "set_wifi_calling": _set_wifi_calling,
    "lock_sim_card": _lock_sim_card,
    "break_apn_settings": _break_apn_settings,
    "break_apn_mms_setting": _break_apn_mms_setting,
    "remove_app_permission": _remove_app_permission,
    "break_vpn": _break_vpn,
    "set_data_usage": _set_data_usage,
    "enable_roaming": writes.enable_roaming,
    "disable_roaming": writes.disable_roaming,
    "suspend_line_for_overdue_bill": _suspend_line_for_overdue_bill,
}


def prepare(state: State, setup: tuple[Action, ...]) -> None:
    """Brings a new state to where a task begins.

    Raises:
        KeyError, TypeError, Refused: a task does what upstream's tasks of this release do not do.
    """
    for action in setup:
        name, arguments = action.call.name, action.call.arguments
        if name in _SWITCHES:
            for field, value in _SWITCHES[name].items():
                setattr(state.phone, field, value)
            state.search()
        else:
            _SETUP[name](state, **arguments)
        state.synchronise()
