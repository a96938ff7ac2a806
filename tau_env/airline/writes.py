"""The airline's tools that change something: first all that upstream checks, in its order, then the change."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tau_env.airline.reads import day_key, flight_of, reservation_of, user_of
from tau_env.attempt import Halfway, Overfull, Refused, Unfit, storable
from tau_env.records import Record, Tables

NOW = "2024-05-15T15:00:00"
MAX_PAYMENTS = 1_000
"""Payments of one reservation: cancelling doubles them, and nothing upstream stops a model from cancelling on."""
MAX_LIST = 200
"""Flights, passengers or payments of one call."""
_NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
_NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")


def book_reservation(
    tables: Tables,
    user_id: str,
    origin: str,
    destination: str,
    flight_type: str,
    cabin: str,
    flights: list[Any],
    passengers: list[Any],
    payment_methods: list[Any],
    total_baggages: int,
    nonfree_baggages: int,
    insurance: str,
) -> str:
    """A new reservation, paid in full. Raises: Refused, Unfit, Overfull, Halfway."""
    booked, people = _rows("flights", flights), _rows("passengers", passengers)
    payments = _rows("payment_methods", payment_methods)
    user_of(tables, user_id)
    reservation_id = next((name for name in _NEW_RESERVATIONS if tables.get("reservations", name) is None), None)
    if reservation_id is None:
        raise Refused("Too many reservations")
    reservation = {
        "reservation_id": reservation_id,
        "user_id": user_id,
        **storable({"origin": origin, "destination": destination}),
        "flight_type": flight_type,
        "cabin": cabin,
        "flights": [_seats(tables, flight, cabin, len(people)) for flight in booked],
        "passengers": people,
        "payment_history": payments,
        "created_at": NOW,
        "total_baggages": total_baggages,
        "nonfree_baggages": nonfree_baggages,
        "insurance": insurance,
        "status": None,
    }
    fee = 30 * len(people) if insurance == "yes" else 0
    price = sum(flight["price"] for flight in reservation["flights"]) * len(people) + fee + 50 * nonfree_baggages
    _check_payments(user_of(tables, user_id), payments, price)
    user = tables.edit("users", user_id)
    _deduct(user, payments)
    for flight in booked:
        day = tables.edit("days", day_key(flight["flight_number"], flight["date"]))
        day["available_seats"][cabin] -= len(people)
    tables.add("reservations", reservation_id, reservation)
    user["reservations"].append(reservation_id)
    return json.dumps(reservation)


def cancel_reservation(tables: Tables, reservation_id: str) -> str:
    """Cancel, and give back every payment: again at each further call, as upstream. Raises: Refused, Overfull."""
    reservation_of(tables, reservation_id)
    reservation = tables.edit("reservations", reservation_id)
    history = reservation["payment_history"]
    if 2 * len(history) > MAX_PAYMENTS:
        raise Overfull(f"too many payments in one reservation: at most {MAX_PAYMENTS} are allowed")
    history += [{"payment_id": payment["payment_id"], "amount": -payment["amount"]} for payment in history]
    reservation["status"] = "cancelled"
    return json.dumps(reservation)


def send_certificate(tables: Tables, user_id: str, amount: int) -> str:
    """Give a user a certificate, of which upstream knows three. Raises: Refused, Unfit."""
    methods = user_of(tables, user_id)["payment_methods"]
    for name in _NEW_CERTIFICATES:
        if name not in methods:
            try:
                value = float(amount)
            except OverflowError as error:
                raise Unfit("amount is too large") from error
            methods = tables.edit("users", user_id)["payment_methods"]
            methods[name] = {"source": "certificate", "id": name, "amount": value}
            return f"Certificate {name} added to user {user_id} with amount {amount}."
    raise Refused("Too many certificates")


def update_reservation_baggages(
    tables: Tables, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
) -> str:
    """Other numbers of bags; further ones that are not free are paid. Raises: Refused, Overfull."""
    reservation = reservation_of(tables, reservation_id)
    price = 50 * max(0, nonfree_baggages - reservation["nonfree_baggages"])
    reservation = _charge(tables, reservation, payment_id, price)
    reservation["total_baggages"] = total_baggages
    reservation["nonfree_baggages"] = nonfree_baggages
    return json.dumps(reservation)


def update_reservation_flights(
    tables: Tables, reservation_id: str, cabin: str, flights: list[Any], payment_id: str
) -> str:
    """Other flights or another cabin; the difference is paid or given back. Raises: Refused, Unfit, Overfull.

    As upstream, a flight that stays in its cabin keeps its price and needs no seat, and no seat is taken or set free.
    """
    wanted = _rows("flights", flights)
    reservation = reservation_of(tables, reservation_id)
    people = len(reservation["passengers"])
    kept = {}
    if cabin == reservation["cabin"]:
        for flight in reversed(reservation["flights"]):
            kept[flight["flight_number"], flight["date"]] = flight
    new = [
        dict(kept.get((flight["flight_number"], flight["date"])) or _seats(tables, flight, cabin, people))
        for flight in wanted
    ]
    price = sum(flight["price"] for flight in new) - sum(flight["price"] for flight in reservation["flights"])
    reservation = _charge(tables, reservation, payment_id, price * people)
    reservation["flights"] = new
    reservation["cabin"] = cabin
    return json.dumps(reservation)


def update_reservation_passengers(tables: Tables, reservation_id: str, passengers: list[Any]) -> str:
    """Other people, as many as before. Raises: Refused, Unfit, Overfull."""
    people = _rows("passengers", passengers)
    if len(people) != len(reservation_of(tables, reservation_id)["passengers"]):
        raise Refused("Number of passengers does not match")
    reservation = tables.edit("reservations", reservation_id)
    reservation["passengers"] = people
    return json.dumps(reservation)


def _seats(tables: Tables, wanted: Record, cabin: str, people: int) -> Record:
    """A flight as a reservation has it, if it has seats for all."""
    number, date = wanted["flight_number"], wanted["date"]
    flight, day = flight_of(tables, number, date)
    if day["status"] != "available":
        raise Refused(f"Flight {number} not available on date {date}")
    if day["available_seats"][cabin] < people:
        raise Refused(f"Not enough seats on flight {number}")
    return {
        "flight_number": number,
        "origin": flight.origin,
        "destination": flight.destination,
        "date": date,
        "price": day["prices"][cabin],
    }


def _check_payments(user: Record, payments: list[Record], price: int) -> None:
    for payment in payments:
        name = payment["payment_id"]
        if name not in user["payment_methods"]:
            raise Refused(f"Payment method {name} not found")
        method = user["payment_methods"][name]
        if method["source"] != "credit_card" and method["amount"] < payment["amount"]:
            raise Refused(f"Not enough balance in payment method {name}")
    paid = sum(payment["amount"] for payment in payments)
    if paid != price:
        raise Refused(f"Payment amount does not add up, total price is {price}, but paid {paid}")


def _deduct(user: Record, payments: list[Record]) -> None:
    """Take what was agreed; a certificate is used up, so that the same one given twice fails halfway, as upstream."""
    methods = user["payment_methods"]
    for payment in payments:
        name = payment["payment_id"]
        if name not in methods:
            raise Halfway(repr(name))
        if methods[name]["source"] == "gift_card":
            try:
                methods[name]["amount"] -= payment["amount"]
            except OverflowError as error:
                raise Halfway(str(error)) from error
        elif methods[name]["source"] == "certificate":
            del methods[name]


def _charge(tables: Tables, reservation: Record, payment_id: str, price: int) -> Record:
    """A draft of the reservation with its price paid; negative prices are given back."""
    methods = user_of(tables, reservation["user_id"])["payment_methods"]
    if payment_id not in methods:
        raise Refused("Payment method not found")
    method = methods[payment_id]
    if method["source"] == "certificate":
        raise Refused("Certificate cannot be used to update reservation")
    if method["source"] == "gift_card":
        if method["amount"] < price:
            raise Refused("Gift card balance is not enough")
        tables.edit("users", reservation["user_id"])["payment_methods"][payment_id]["amount"] -= price
    draft = tables.edit("reservations", reservation["reservation_id"])
    if price != 0:
        if len(draft["payment_history"]) >= MAX_PAYMENTS:
            raise Overfull(f"too many payments in one reservation: at most {MAX_PAYMENTS} are allowed")
        draft["payment_history"].append({"payment_id": payment_id, "amount": price})
    return draft


class _Flight(TypedDict):
    flight_number: str
    date: str


class _Passenger(TypedDict):
    first_name: str
    last_name: str
    dob: str


class _Payment(TypedDict):
    payment_id: str
    amount: int


_ROWS: Mapping[str, TypeAdapter[Any]] = {
    "flights": TypeAdapter(list[_Flight]),
    "passengers": TypeAdapter(list[_Passenger]),
    "payment_methods": TypeAdapter(list[_Payment]),
}


def _rows(name: str, rows: list[Any]) -> list[Record]:
    """The objects in a list of a call, as upstream's models take them: the documentation lets any object pass.

    Raises:
        Unfit: one does not fit. Overfull: they are too many.
    """
    if len(rows) > MAX_LIST:
        raise Overfull(f"too many entries in a list: at most {MAX_LIST} are allowed")
    try:
        found: list[Record] = _ROWS[name].validate_python(rows)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        row, field = f"{name}[{first['loc'][0]}]", first["loc"][-1]
        if first["type"] == "missing":
            raise Unfit(f"{row} has no field {field}") from error
        raise Unfit(f"{row}: {field} must be {'a whole number' if field == 'amount' else 'text'}") from error
    for record in found:
        storable({field: value for field, value in record.items() if field != "amount"})
    return found
