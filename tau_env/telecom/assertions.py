"""The six checks of the state at the end that the tasks use."""

from collections.abc import Callable, Mapping

from tau_env.domain import Assertion
from tau_env.telecom.company import Refusal
from tau_env.telecom.state import State

_CLOSE = 1e-6


def _can_send_mms(state: State, expected_status: bool) -> bool:
    return state.phone.can_send_mms(state.surroundings) == expected_status


def _mobile_data_status(state: State, expected_status: bool) -> bool:
    return state.phone.has_data(state.surroundings) == expected_status


def _internet_speed(state: State, expected_speed: float, expected_desc: str | None = None) -> bool:
    speed, grade = state.phone.speed(state.surroundings) or (0.0, "No Connection")
    return speed >= expected_speed and (expected_desc is None or grade.lower() == expected_desc.lower())


def _service_status(state: State, expected_status: str) -> bool:
    return state.phone.network_connection_status == expected_status


def _data_refueling_amount(state: State, customer_id: str, line_id: str, expected_amount: float) -> bool:
    refuelled: float = state.company.owned_line(customer_id, line_id)["data_refueling_gb"]
    return abs(refuelled - expected_amount) < _CLOSE


def _no_overdue_bill(state: State, overdue_bill_id: str) -> bool:
    bill = state.company.bills.get(overdue_bill_id)
    return bill is None or bill["status"] == "Paid"


_CHECKS: Mapping[str, Callable[..., bool]] = {
    "assert_can_send_mms": _can_send_mms,
    "assert_mobile_data_status": _mobile_data_status,
    "assert_internet_speed": _internet_speed,
    "assert_service_status": _service_status,
    "assert_data_refueling_amount": _data_refueling_amount,
    "assert_no_overdue_bill": _no_overdue_bill,
}


def holds(state: State, assertion: Assertion) -> bool:
    """Whether a task's assertion is as it expects; one about a record that is not there is not.

    Raises:
        KeyError: no task of this release has such an assertion.
    """
    try:
        return _CHECKS[assertion.name](state, **assertion.arguments) == assertion.expected
    except Refusal:
        return False
