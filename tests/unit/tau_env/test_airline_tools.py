"""The airline: what each tool says and does, from users, flights and reservations of the file."""

import json
from typing import Any

import pytest

from interaction.call import Call
from interaction.outcome import ErrorKind
from tau_env import airline
from tau_env.airline.database import base, timetable
from tau_env.airline.inputs import MAX_LIST
from tau_env.airline.writes import MAX_PAYMENTS
from tau_env.attempt import Attempt

TASK = airline.load_tasks()[0]
USERS, RESERVATIONS, DAYS = (base().tables[name] for name in ("users", "reservations", "days"))
SOMEBODY = {"first_name": "A", "last_name": "B", "dob": "2000-01-01"}
FREE = next(
    key for key, day in DAYS.items() if day["status"] == "available" and min(day["available_seats"].values()) > 3
)
LEG = dict(zip(("flight_number", "date"), FREE.split(" "), strict=True))


@pytest.fixture
def desk() -> Attempt:
    return airline.open(TASK)


def said(desk: Attempt, name: str, **arguments: Any) -> str:
    result = desk.call(Call(name, arguments), "agent")
    assert result.error is None, result.text
    return result.text


def record(desk: Attempt, name: str, **arguments: Any) -> Any:
    return json.loads(said(desk, name, **arguments))


def failure(desk: Attempt, kind: ErrorKind, name: str, **arguments: Any) -> str:
    before = desk.digest()
    result = desk.call(Call(name, arguments), "agent")
    assert result.error is kind, result
    assert desk.digest() == before
    return result.text.removeprefix("Error: ")


def refusal(desk: Attempt, name: str, **arguments: Any) -> str:
    return failure(desk, ErrorKind.RESULT, name, **arguments)


def user_with(source: str, amount: float = 0.0) -> tuple[str, str]:
    """A user of the file and one of his payment methods."""
    for user_id, user in USERS.items():
        for name, method in user["payment_methods"].items():
            if method["source"] == source and method.get("amount", amount) >= amount:
                return user_id, name
    raise AssertionError("no such user")


def booking(user_id: str, payments: list[dict[str, Any]], **other: Any) -> dict[str, Any]:
    return {
        "user_id": user_id,
        "origin": "SFO",
        "destination": "JFK",
        "flight_type": "one_way",
        "cabin": "economy",
        "flights": [LEG],
        "passengers": [SOMEBODY],
        "payment_methods": payments,
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "insurance": "no",
        **other,
    }


def price(people: int = 1, cabin: str = "economy") -> int:
    found: int = DAYS[FREE]["prices"][cabin] * people
    return found


def reservation_paid_with(source: str) -> tuple[dict[str, Any], str]:
    for reservation in RESERVATIONS.values():
        for name, method in USERS[reservation["user_id"]]["payment_methods"].items():
            if method["source"] == source:
                return reservation, name
    raise AssertionError("no such reservation")


def test_records_are_read_as_they_are(desk: Attempt) -> None:
    for user_id in list(USERS)[:20]:
        assert record(desk, "get_user_details", user_id=user_id) == USERS[user_id]
    for name in list(RESERVATIONS)[:20]:
        assert record(desk, "get_reservation_details", reservation_id=name) == RESERVATIONS[name]
    assert len(record(desk, "list_all_airports")) == 20


def test_what_is_not_there_is_said_by_name(desk: Attempt) -> None:
    assert refusal(desk, "get_user_details", user_id="é") == "User é not found"
    assert refusal(desk, "get_reservation_details", reservation_id="X") == "Reservation X not found"
    assert refusal(desk, "cancel_reservation", reservation_id="X") == "Reservation X not found"
    assert refusal(desk, "get_flight_status", flight_number="X", date="") == "Flight X not found"
    never = refusal(desk, "get_flight_status", flight_number="HAT001", date="2025-01-01")
    assert never == "Flight HAT001 not found on date 2025-01-01"


def test_every_day_of_every_flight_has_its_status(desk: Attempt) -> None:
    for key in list(DAYS)[::97]:
        number, date = key.split(" ")
        assert said(desk, "get_flight_status", flight_number=number, date=date) == DAYS[key]["status"]


def test_direct_flights_are_those_that_can_be_booked(desk: Attempt) -> None:
    flights = timetable().by_number.values()
    for flight in list(flights)[::30]:
        route = {"origin": flight.origin, "destination": flight.destination, "date": "2024-05-20"}
        expected = [
            other.number
            for other in flights
            if (other.origin, other.destination) == (flight.origin, flight.destination)
            and DAYS.get(f"{other.number} 2024-05-20", {}).get("status") == "available"
        ]
        assert [row["flight_number"] for row in record(desk, "search_direct_flight", **route)] == expected
    assert record(desk, "search_direct_flight", origin="", destination="", date="") == []


def test_connections_meet_and_leave_after_arrival(desk: Attempt) -> None:
    pairs = record(desk, "search_onestop_flight", origin="SFO", destination="JFK", date="2024-05-20")
    assert pairs
    for first, second in pairs:
        assert (first["origin"], second["destination"]) == ("SFO", "JFK")
        assert first["destination"] == second["origin"]
        assert second["scheduled_departure_time_est"] >= first["scheduled_arrival_time_est"]
        assert second["date"] == ("2024-05-21" if "+1" in first["scheduled_arrival_time_est"] else "2024-05-20")


def test_a_booking_takes_seats_and_money(desk: Attempt) -> None:
    user_id, card = user_with("gift_card", price() + 1)
    held = USERS[user_id]["payment_methods"][card]["amount"]
    booked = record(desk, "book_reservation", **booking(user_id, [{"payment_id": card, "amount": price()}]))
    assert (booked["reservation_id"], booked["created_at"]) == ("HATHAT", "2024-05-15T15:00:00")
    after = record(desk, "get_user_details", user_id=user_id)
    assert after["payment_methods"][card]["amount"] == held - price()
    assert after["reservations"] == [*USERS[user_id]["reservations"], "HATHAT"]
    seats = json.loads(desk.changed()["days", FREE])["available_seats"]
    assert seats == {**DAYS[FREE]["available_seats"], "economy": DAYS[FREE]["available_seats"]["economy"] - 1}


def test_a_certificate_is_used_up_and_twice_it_fails_halfway(desk: Attempt) -> None:
    user_id, _ = user_with("credit_card")
    said(desk, "send_certificate", user_id=user_id, amount=price() + 10)
    name = "certificate_3221322"
    twice = [{"payment_id": name, "amount": price()}, {"payment_id": name, "amount": 0}]
    result = desk.call(Call("book_reservation", booking(user_id, twice)), "agent")
    assert (result.error, result.text) == (ErrorKind.EXECUTION, f"Error: '{name}'")
    after = record(desk, "get_user_details", user_id=user_id)
    assert name not in after["payment_methods"] and "HATHAT" not in after["reservations"]
    said(desk, "send_certificate", user_id=user_id, amount=price())
    said(desk, "book_reservation", **booking(user_id, twice[:1]))
    assert name not in record(desk, "get_user_details", user_id=user_id)["payment_methods"]


def test_a_booking_is_refused_in_so_many_words(desk: Attempt) -> None:
    user_id, card = user_with("credit_card")
    pay = [{"payment_id": card, "amount": price()}]

    def ask(**other: Any) -> str:
        return refusal(desk, "book_reservation", **{**booking(user_id, pay), **other})

    assert ask(user_id="nobody") == "User nobody not found"
    assert ask(flights=[{"flight_number": "X", "date": ""}]) == "Flight X not found"
    landed = next(key for key, day in DAYS.items() if day["status"] == "landed").split(" ")
    gone = ask(flights=[{"flight_number": landed[0], "date": landed[1]}])
    assert gone == f"Flight {landed[0]} not available on date {landed[1]}"
    assert ask(passengers=[SOMEBODY] * 100) == f"Not enough seats on flight {LEG['flight_number']}"
    assert ask(payment_methods=[{"payment_id": "x", "amount": 0}]) == "Payment method x not found"
    for more in ({"insurance": "yes"}, {"nonfree_baggages": 2}, {"payment_methods": []}):
        assert ask(**more).startswith("Payment amount does not add up, total price is ")
    poor, gift = user_with("gift_card")
    little = [{"payment_id": gift, "amount": 10**6}]
    assert ask(user_id=poor, payment_methods=little) == f"Not enough balance in payment method {gift}"


def test_there_are_three_new_reservations_and_three_new_certificates(desk: Attempt) -> None:
    user_id, card = user_with("credit_card")
    for _ in range(3):
        said(desk, "book_reservation", **booking(user_id, [{"payment_id": card, "amount": price()}]))
        said(desk, "send_certificate", user_id=user_id, amount=1)
    assert refusal(desk, "book_reservation", **booking(user_id, [])) == "Too many reservations"
    assert refusal(desk, "send_certificate", user_id=user_id, amount=1) == "Too many certificates"


def test_whole_numbers_may_be_texts_in_payments_as_upstream(desk: Attempt) -> None:
    user_id, card = user_with("credit_card")
    for amount in (price(), float(price()), f" {price()}.00 ", f"0_{price()}", f"+{price()}"):
        paid = [{"payment_id": card, "amount": amount, "note": "left out"}]
        booked = record(airline.open(TASK), "book_reservation", **booking(user_id, paid))
        assert booked["payment_history"] == [{"payment_id": card, "amount": price()}]
    for amount in (1.5, "1.5", "", "x", None, [1], 1e300, "9" * 2_000, "1__0", "٣"):
        paid = [{"payment_id": card, "amount": amount}]
        failure(desk, ErrorKind.BAD_ARGUMENTS, "book_reservation", **booking(user_id, paid))


@pytest.mark.parametrize("rows", [[{}], [{"flight_number": "HAT001"}], [{"flight_number": 1, "date": "2024-05-20"}]])
def test_objects_in_lists_that_lack_a_field_are_named(desk: Attempt, rows: list[Any]) -> None:
    user_id, _ = user_with("credit_card")
    text = failure(desk, ErrorKind.BAD_ARGUMENTS, "book_reservation", **booking(user_id, [], flights=rows))
    assert text.startswith("flights[0]")
    people = [{key: value for key, value in SOMEBODY.items() if key != "dob"}]
    asked = {"reservation_id": next(iter(RESERVATIONS)), "passengers": people}
    text = failure(desk, ErrorKind.BAD_ARGUMENTS, "update_reservation_passengers", **asked)
    assert text == "passengers[0] has no field dob"


def test_cancelling_gives_back_each_time_up_to_a_bound(desk: Attempt) -> None:
    name, reservation = next(iter(RESERVATIONS.items()))
    first = record(desk, "cancel_reservation", reservation_id=name)
    assert first["status"] == "cancelled"
    assert sum(payment["amount"] for payment in first["payment_history"]) == 0
    assert len(first["payment_history"]) == 2 * len(reservation["payment_history"])
    while (result := desk.call(Call("cancel_reservation", {"reservation_id": name}), "agent")).error is None:
        assert len(json.loads(result.text)["payment_history"]) <= MAX_PAYMENTS
    assert result.error is ErrorKind.LIMIT


def test_further_bags_are_paid_and_fewer_are_not_given_back(desk: Attempt) -> None:
    reservation, card = reservation_paid_with("credit_card")
    asked = {"reservation_id": reservation["reservation_id"], "payment_id": card}
    free = reservation["nonfree_baggages"]
    more = record(desk, "update_reservation_baggages", total_baggages=9, nonfree_baggages=free + 2, **asked)
    assert more["payment_history"][-1] == {"payment_id": card, "amount": 100}
    fewer = record(desk, "update_reservation_baggages", total_baggages=9.0, nonfree_baggages=0, **asked)
    assert fewer["payment_history"] == more["payment_history"] and repr(fewer["total_baggages"]) == "9"
    assert [repr(call.arguments["total_baggages"]) for _, call in desk.written] == ["9", "9"]
    nobody = {"total_baggages": 1, "nonfree_baggages": 0, "reservation_id": reservation["reservation_id"]}
    assert refusal(desk, "update_reservation_baggages", payment_id="x", **nobody) == "Payment method not found"


def test_certificates_and_poor_gift_cards_update_nothing(desk: Attempt) -> None:
    reservation, certificate = reservation_paid_with("certificate")
    asked = {"reservation_id": reservation["reservation_id"], "total_baggages": 1, "nonfree_baggages": 10**6}
    text = refusal(desk, "update_reservation_baggages", payment_id=certificate, **asked)
    assert text == "Certificate cannot be used to update reservation"
    reservation, card = reservation_paid_with("gift_card")
    asked["reservation_id"] = reservation["reservation_id"]
    assert refusal(desk, "update_reservation_baggages", payment_id=card, **asked) == "Gift card balance is not enough"


def test_a_flight_that_stays_in_its_cabin_keeps_its_price(desk: Attempt) -> None:
    reservation, card = reservation_paid_with("credit_card")
    same = [{"flight_number": row["flight_number"], "date": row["date"]} for row in reservation["flights"]]
    asked = {"reservation_id": reservation["reservation_id"], "cabin": reservation["cabin"], "payment_id": card}
    assert record(desk, "update_reservation_flights", flights=same, **asked) == reservation
    assert not desk.written
    other = record(desk, "update_reservation_flights", flights=[LEG], **asked)
    due = DAYS[FREE]["prices"][reservation["cabin"]] - sum(row["price"] for row in reservation["flights"])
    assert other["payment_history"][-1]["amount"] == due * len(reservation["passengers"])
    assert ("days", FREE) not in desk.changed()


def test_people_change_but_not_their_number(desk: Attempt) -> None:
    name, reservation = next(iter(RESERVATIONS.items()))
    count = len(reservation["passengers"])
    after = record(desk, "update_reservation_passengers", reservation_id=name, passengers=[SOMEBODY] * count)
    assert after["passengers"] == [SOMEBODY] * count
    wrong = refusal(desk, "update_reservation_passengers", reservation_id=name, passengers=[SOMEBODY] * (count + 1))
    assert wrong == "Number of passengers does not match"


def test_long_lists_are_refused(desk: Attempt) -> None:
    user_id, _ = user_with("credit_card")
    for key, row in (("flights", LEG), ("passengers", SOMEBODY), ("payment_methods", {"payment_id": "x", "amount": 1})):
        asked = booking(user_id, []) | {key: [row] * (MAX_LIST + 1)}
        failure(desk, ErrorKind.LIMIT, "book_reservation", **asked)
