"""Every function of both sides: with right, missing, surplus and ill-typed arguments, as a read, and as a write."""

import pytest

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom
from tau_env.domain import Action, Story, Task

RIGHT = {
    "customer_id": "C1001",
    "line_id": "L1002",
    "bill_id": "B1002",
    "id": "D1001",
    "phone_number": "555-123-2002",
    "full_name": "john smith",
    "dob": "1985-06-15",
    "reason": "lost",
    "limit": 2,
    "summary": "I cannot fix the issue.",
    "gb_amount": 1.5,
    "mode": "3g_only",
    "apn_settings": {"apn_name": "internet", "mmsc_url": None},
    "app_name": "browser",
    "permission": "sms",
}
WRONG = {
    "string": [None, 1, 1.5, True, ["C1001"], {"a": 1}],
    "integer": [None, "2", 1.5, True, [2], {}, float("nan"), float("inf")],
    "number": [None, "2", True, [2], {}, float("nan"), float("inf"), float("-inf"), 10**400],
    "object": [None, "internet", 1, True, [], [["apn_name", "internet"]]],
}
FUNCTIONS = [(side, document) for side in ("agent", "user") for document in telecom.functions(side)]
EACH = pytest.mark.parametrize(("side", "document"), FUNCTIONS, ids=[document["name"] for _, document in FUNCTIONS])
READS = [item for item in FUNCTIONS if item[1]["name"] not in telecom.WRITES]
WRITES = [item for item in FUNCTIONS if item[1]["name"] in telecom.WRITES]


def began(*setup):
    """A task of one line, so that a test says itself what is broken."""
    known = ("set_user_info", {"name": "John Smith", "phone_number": "555-123-2002"})
    actions = tuple(Action("user", Call(name, arguments)) for name, arguments in (known, *setup))
    return telecom.open(Task("telecom", "x", "telecom_service", Story(""), actions, (), (), (), ()))


BROKEN = (
    ("turn_airplane_mode_on", {}),
    ("unseat_sim_card", {}),
    ("turn_data_saver_mode_on", {}),
    ("break_vpn", {}),
    (
        "suspend_line_for_overdue_bill",
        {"new_bill_id": "B7", "contract_ended": True, **{k: RIGHT[k] for k in ("customer_id", "line_id")}},
    ),
)


def right(document):
    return {name: RIGHT[name] for name in document["parameters"]["properties"]}


def kind(schema):
    return schema["anyOf"][-1]["type"] if "anyOf" in schema else schema["type"]


@EACH
def test_right_arguments_are_taken_with_and_without_the_optional_ones(side, document):
    for setup in ((), BROKEN):
        for names in (document["parameters"]["properties"], document["parameters"]["required"]):
            result = began(*setup).call(Call(document["name"], {name: RIGHT[name] for name in names}), side)
            assert result.error in (None, ErrorKind.RESULT)
            assert result.text


@EACH
def test_arguments_that_do_not_fit_are_refused_and_change_nothing(side, document):
    database, name, arguments = began(), document["name"], right(document)
    before = database.digest()
    properties = document["parameters"]["properties"]
    bad = [
        {key: value for key, value in arguments.items() if key != lost} for lost in document["parameters"]["required"]
    ]
    bad += [
        {**arguments, surplus: 1}
        for surplus in ("extra", "self", "state", "side", "", "x" * 9999)
        if surplus not in arguments
    ]
    bad += [{**arguments, key: value} for key, schema in properties.items() for value in WRONG[kind(schema)]]
    calls = [Call(name, each) for each in bad] + [
        Call(name, arguments, ("C1001",)),
        Call(name, {}, tuple(arguments.values()) or (1,)),
    ]
    for call in calls:
        result = database.call(call, side)
        assert result.error == ErrorKind.BAD_ARGUMENTS, call
        assert result.text.startswith("Error: ") and len(result.text) < 20_000
    assert database.digest() == before and not database.written


@EACH
def test_a_function_of_the_other_side_is_not_known(side, document):
    database = began()
    before = database.digest()
    result = database.call(Call(document["name"], right(document)), "user" if side == "agent" else "agent")
    assert (result.error, result.text) == (ErrorKind.UNKNOWN_FUNCTION, f"Error: Tool {document['name']} not found")
    assert database.digest() == before


@pytest.mark.parametrize(("side", "document"), READS, ids=[document["name"] for _, document in READS])
def test_a_read_changes_nothing_and_says_the_same_twice(side, document):
    for setup in ((), BROKEN):
        database = began(*setup)
        before = database.digest()
        call = Call(document["name"], right(document))
        assert database.call(call, side) == database.call(call, side)
        assert database.digest() == before and not database.written


CHANGES = {
    "suspend_line": (),
    "resume_line": BROKEN,
    "send_payment_request": (),
    "enable_roaming": (("disable_roaming", {"customer_id": "C1001", "line_id": "L1002"}),),
    "disable_roaming": (),
    "refuel_data": (),
    "set_network_mode_preference": (),
    "toggle_airplane_mode": (),
    "reseat_sim_card": (("unseat_sim_card", {}),),
    "toggle_data": (),
    "toggle_roaming": (),
    "toggle_data_saver_mode": (),
    "set_apn_settings": (),
    "reset_apn_settings": (),
    "toggle_wifi": (),
    "toggle_wifi_calling": (),
    "connect_vpn": (),
    "disconnect_vpn": (("break_vpn", {}),),
    "grant_app_permission": (),
    "reboot_device": (),
    "make_payment": (),
}
ONCE = {
    *("suspend_line", "resume_line", "send_payment_request", "enable_roaming", "disable_roaming", "make_payment"),
    *("set_network_mode_preference", "reseat_sim_card", "set_apn_settings", "reset_apn_settings", "connect_vpn"),
    *("disconnect_vpn", "grant_app_permission", "reboot_device"),
}


@pytest.mark.parametrize(("side", "document"), WRITES, ids=[document["name"] for _, document in WRITES])
def test_a_write_is_noted_when_it_changes_something_and_only_then(side, document):
    name = document["name"]
    database = began(("simulate_network_search", {}), *CHANGES[name])
    if name == "make_payment":
        database.call(Call("send_payment_request", {"customer_id": "C1001", "bill_id": "B1002"}), "agent")
    if name == "reboot_device":
        database.call(Call("reset_apn_settings", {}), "user")
    known, before = len(database.written), database.digest()
    database.call(Call(name, right(document)), side)
    assert [(each, call.name) for each, call in database.written[known:]] == [(side, name)]
    after = database.digest()
    assert after != before
    database.call(Call(name, right(document)), side)
    assert (len(database.written) == known + 1) == (name in ONCE) == (database.digest() == after)


def test_every_write_is_tried_above_and_every_function_is_documented_once():
    assert set(CHANGES) == telecom.WRITES
    names = [document["name"] for _, document in FUNCTIONS]
    assert len(names) == len(set(names)) == 43 and telecom.WRITES < set(names)


def test_a_bill_is_requested_paid_and_heard_of_on_both_sides():
    database = began(BROKEN[-1])
    unpaid = database.call(Call("check_payment_request", {}), "user").text
    assert unpaid == "No payment request has been made."
    database.call(Call("send_payment_request", {"customer_id": "C1001", "bill_id": "B7"}), "agent")
    asked = database.call(Call("check_payment_request", {}), "user").text
    assert asked == "You have a payment request for bill B7 of 65.0 USD."
    again = database.call(Call("send_payment_request", {"customer_id": "C1001", "bill_id": "B1002"}), "agent")
    assert again.error == ErrorKind.RESULT
    database.call(Call("make_payment", {}), "user")
    assert '"status": "Paid"' in database.call(Call("get_details_by_id", {"id": "B7"}), "agent").text
    assert database.call(Call("check_payment_request", {}), "user").text == unpaid


def test_a_resumed_line_reaches_the_phone_when_it_searches_for_a_network():
    database = began(BROKEN[-1], ("simulate_network_search", {}))
    assert "No Signal" in database.call(Call("check_status_bar", {}), "user").text
    database.call(Call("resume_line", {"customer_id": "C1001", "line_id": "L1002"}), "agent")
    assert "No Signal" in database.call(Call("check_status_bar", {}), "user").text
    assert "Excellent | 5G" in database.call(Call("reboot_device", {}), "user").text


def test_refuelling_makes_a_draft_bill_where_there_is_none():
    database, other = began(), began()
    call = Call("refuel_data", {"customer_id": "C1002", "line_id": "L1004", "gb_amount": 2})
    assert database.call(call, "agent").text.startswith('{"message": "Successfully added 2 GB of data for line L1004')
    other.call(call, "agent")
    assert database.digest() == other.digest()
    places = {each["where"] for each in database.differences(began())}
    assert "agent.lines[L1004].data_refueling_gb" in places and "agent.customers[0].bill_ids[2]" not in places
    assert other.differences(database) == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"apn_name": "wrong"},
        {"apn_name": None},
        {"reset_at_reboot": 2},
        {"reset_at_reboot": "maybe"},
        {"reset_at_reboot": None},
        {"mms_apn": 5},
        {"mmsc_url": ["x"]},
        {"mms_port": "eighty"},
        {"mms_port": 1.5},
        {"mms_port": "9" * 5000},
        {"mms_port": float("nan")},
        {1: 2},
        {None: "x", "apn_name": "internet"},
    ],
)
def test_access_point_settings_that_do_not_fit_are_refused(settings):
    database = began()
    before = database.digest()
    assert database.call(Call("set_apn_settings", {"apn_settings": settings}), "user").error == ErrorKind.BAD_ARGUMENTS
    assert database.digest() == before and not database.written


@pytest.mark.parametrize(
    ("name", "arguments", "has"),
    [
        (
            "refuel_data",
            {"gb_amount": 2},
            'added 2 GB of data for line L1002 for $4.00", "new_data_refueling_gb": "2.0"',
        ),
        ("refuel_data", {"gb_amount": 2.0}, 'added 2.0 GB of data for line L1002 for $4.00"'),
        ("get_data_usage", {}, '{"line_id": "L1002", "data_used_gb": "8.7", "data_limit_gb": "15.0"'),
        (
            "get_details_by_id",
            {"id": "L1002"},
            '"data_used_gb": 8.7, "data_refueling_gb": 0.0, "roaming_enabled": true',
        ),
        ("get_details_by_id", {"id": "D1001"}, '"activation_date": "2025-01-20 14:30:00"'),
        ("get_customer_by_phone", {}, '"created_at": "2025-01-15 10:30:00", "last_extension_date": null'),
    ],
)
def test_an_answer_has_the_form_that_tau2_bench_gives_it(name, arguments, has):
    document = next(document for side, document in FUNCTIONS if document["name"] == name)
    assert has in began().call(Call(name, {**right(document), **arguments}), "agent").text
