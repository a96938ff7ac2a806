"""Whatever a call holds, it gets a text of bounded length; where it does not fit, nothing changes. Attempts share
nothing that changes."""

import copy
from typing import Any

import pytest

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import telecom
from tau_env.arithmetic import calculate
from tau_env.attempt import Function, Halfway, Overfull, Refused, TableAttempt
from tau_env.records import Base
from tau_env.tasks import DOMAINS

AIRLINE: Any = DOMAINS["airline"]
EACH = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
LONGEST = 200_100
FITS: dict[str, Any] = {"string": "x", "integer": 1, "number": 1.5, "array": [], "object": {"apn_name": "internet"}}
NO_FIT: dict[str, tuple[Any, ...]] = {
    "string": (None, 1, []),
    "integer": (None, "1", 1.5, True, float("nan")),
    "number": (None, "2", True, float("nan"), 10**400),
    "array": (None, "x", ("x",), [1]),
    "object": (None, "internet", [["apn_name", "internet"]]),
}
DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
HOSTILE = (DEEP, ["x"] * 100_000, "A" * 1_000_000, 10**5_000, {1}, ErrorKind, "\ud800", "{0.__class__} %s", {1: 2})


def opened(domain: Any) -> Any:
    return domain.open(domain.load_tasks()[0])


def kind(schema: dict[str, Any]) -> str:
    return str(schema["anyOf"][-1]["type"] if "anyOf" in schema else schema["type"])


def fitting(doc: dict[str, Any]) -> dict[str, Any]:
    schemas = doc["parameters"]["properties"].items()
    return {name: schema["enum"][0] if "enum" in schema else FITS[kind(schema)] for name, schema in schemas}


def misfits(doc: dict[str, Any]) -> list[Call]:
    arguments, parameters = fitting(doc), doc["parameters"]
    bad = [{key: value for key, value in arguments.items() if key != lost} for lost in parameters["required"]]
    bad += [{**arguments, key: 1} for key in ("extra", "self", "tables", "")]
    for name, schema in parameters["properties"].items():
        bad += [{**arguments, name: value} for value in NO_FIT[kind(schema)]]
        bad += [{**arguments, name: "first"}] if "enum" in schema else []
    return [*(Call(doc["name"], each) for each in bad), Call(doc["name"], arguments, ("C1001",))]


@EACH
def test_what_does_not_fit_is_refused_and_hostile_values_get_a_text_and_neither_changes_anything(domain: Any) -> None:
    failed, functions = list[Any](), [(side, doc) for side in ("agent", "user") for doc in domain.functions(side)]
    for side, doc in functions:
        name, database = doc["name"], opened(domain)
        before = database.digest()
        for call in misfits(doc):
            result = database.call(call, side)
            if result.error != ErrorKind.BAD_ARGUMENTS or not result.text.startswith("Error: "):
                failed.append((call, result))
        for value in HOSTILE:
            for arguments in [{"value": value}, *({**fitting(doc), key: value} for key in fitting(doc))]:
                result = database.call(Call(name, arguments), side)
                result.text.encode()
                if len(result.text) > LONGEST:
                    failed.append((name, "too long"))
        other = database.call(Call(name, fitting(doc)), "user" if side == "agent" else "agent")
        if (other.error, other.text) != (ErrorKind.UNKNOWN_FUNCTION, f"Error: Tool {name} not found"):
            failed.append((name, "of the other side", other))
        if database.digest() != before or database.written:
            failed.append((name, "changed something"))
    for unknown in (None, {}, "", "__init__", "open", "é\ud800", "x" * 10**6):
        result = opened(domain).call(Call(unknown, {"a": [1]}), "agent")
        result.text.encode()
        if result.error != ErrorKind.UNKNOWN_FUNCTION or len(result.text) > LONGEST:
            failed.append((unknown, result))
    result = opened(domain).call(Call("transfer_to_human_agents", {10**4000: 1}), "agent")  # type: ignore[dict-item]
    assert result.error == ErrorKind.LIMIT and len(result.text) <= 200
    assert not failed


def test_texts_that_grow_are_cut() -> None:
    for length, cut in ((19_969, ""), (19_970, " [cut: the result has 20001 characters]")):
        echoed = opened(telecom).call(Call("check_app_status", {"app_name": "x" * length}), "user")
        assert echoed.error == ErrorKind.RESULT and echoed.text[20_000:] == cut and "on this phone" in echoed.text
    phone = opened(telecom)
    phone.call(Call("set_apn_settings", {"apn_settings": {"mms_apn": "x" * 100}}), "user")
    assert [place["found"] for place in phone.differences(opened(telecom))] == ["'" + "x" * 99], "a value is cut too"
    desk, users = opened(AIRLINE), AIRLINE.base().tables["users"]
    said = desk.call(Call("calculate", {"expression": ["\U000e0000" * 19_000]}), "agent").text
    for more, cut in ((0, ""), (1, " [cut: the result has 200001 characters]")):
        text = "\U000e0000" * 19_000 + "x" * (200_000 - len(said) + more)
        echoed = desk.call(Call("calculate", {"expression": [text]}), "agent")
        assert echoed.error == ErrorKind.BAD_ARGUMENTS and echoed.text[200_000:] == cut
    for one in AIRLINE.base().tables["reservations"].values():
        cards = [key for key in users[one["user_id"]]["payment_methods"] if key.startswith("credit")]
        if cards and len(one["payment_history"]) == 1:
            break
    about = {"reservation_id": one["reservation_id"]}
    paid = [{**about, "payment_id": cards[0], "total_baggages": 0, "nonfree_baggages": 9 + bag} for bag in range(489)]
    for name, calls in (("cancel_reservation", [about] * 10), ("update_reservation_baggages", paid)):  # 512 and 1,000
        errors = [desk.call(Call(name, arguments), "agent").error for arguments in calls]
        assert errors == [None] * (len(calls) - 1) + [ErrorKind.LIMIT]
    person = dict.fromkeys(("first_name", "last_name", "dob"), "x")
    found = ErrorKind.RESULT, ErrorKind.LIMIT, ErrorKind.BAD_ARGUMENTS
    for people, kind in zip(([person] * 200, [person] * 201, [{**person, "dob": "\ud800"}]), found, strict=True):
        call = Call("update_reservation_passengers", {**about, "passengers": people})
        assert desk.call(call, "agent").error == kind


def test_the_calculator_rounds_to_two_places_and_refuses_what_would_grow() -> None:
    values = {"2 + 2": "4.0", "2.675*1": "2.67", "(13.5-2)*3/7": "4.93", "7//2": "3.0", "9" * 320 + ".0": "inf"}
    values |= {"  -3 - +1.005": "-4.0", "8 / 4 * 2 - 10 // 4": "2.0", "-(2 - 5) * -2": "-6.0"}
    values["1+" * 499 + "10"] = "509.0"
    assert {expression: calculate(None, expression) for expression in values} == values
    for expression in ("(" * 400, "1 / 0", "a", "", "1,2", "(1)(2)", "...", "1" * 1_000):
        with pytest.raises(Refused, match="[Ii]nvalid|Cannot") as refused:
            calculate(None, expression)
        assert refused.value.kind == ErrorKind.RESULT
    for expression in ("9**9**9**9", "1" * 1_001, "-" * 50_000 + "1"):
        with pytest.raises(Overfull):
            calculate(None, expression)


def test_what_a_refused_call_has_changed_so_far_is_no_part_of_a_later_one_unless_it_stays_halfway() -> None:
    faults = {"no": Refused("no"), "half": Halfway("half")}
    faults |= {str(kind): kind("x") for kind in (ArithmeticError, LookupError, ValueError, TypeError)}

    def mark(tables: Any, word: str) -> str:
        tables.edit("orders", word)["status"] = word
        if word in faults:
            raise faults[word]
        return "done"

    doc = {"parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}
    orders = {name: {"status": "open"} for name in (*faults, "yes")}
    attempt = TableAttempt(Base("orders", {"orders": orders}), {"mark": Function({"name": "mark", **doc}, mark)})
    errors = [attempt.call(Call("mark", {"word": word}), "agent").error for word in orders]
    assert errors == [ErrorKind.RESULT, *[ErrorKind.EXECUTION] * 5, None] and len(attempt.written) == 2
    assert attempt.changed().keys() == {("orders", "half"), ("orders", "yes")}


@EACH
def test_attempts_in_turns_are_as_if_each_were_alone_and_a_call_that_is_changed_later_changes_none(domain: Any) -> None:
    tasks = list(domain.load_tasks()[:: 40 if domain is telecom else 4])
    kept, begun = copy.deepcopy(tasks), [domain.open(task).digest() for task in tasks]
    alone, together = ([domain.open(task) for task in tasks] for _ in range(2))
    for database, task in zip(alone, tasks, strict=True):
        for action in copy.deepcopy(task.gold):
            database.call(action.call, action.side)
            for value in action.call.arguments.values():
                if isinstance(value, list | dict):
                    value.clear()
    for step in range(max(len(task.gold) for task in tasks)):
        for database, task in zip(together, tasks, strict=True):
            for action in task.gold[step : step + 1]:
                database.call(action.call, action.side)
    for one, other in zip(together, alone, strict=True):
        assert (one.digest(), str(one.written)) == (other.digest(), str(other.written))
    assert tasks == kept and [domain.open(task).digest() for task in tasks] == begun
