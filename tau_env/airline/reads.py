"""The airline's tools that change nothing, and the look-ups which those that do share with them."""

import json
from collections.abc import Iterable

from tau_env.airline.database import Flight, day_of, timetable
from tau_env.attempt import Refused
from tau_env.records import Record, Tables

_CITIES = {
    "SFO": "San Francisco",
    "JFK": "New York",
    "LAX": "Los Angeles",
    "ORD": "Chicago",
    "DFW": "Dallas",
    "DEN": "Denver",
    "SEA": "Seattle",
    "ATL": "Atlanta",
    "MIA": "Miami",
    "BOS": "Boston",
    "PHX": "Phoenix",
    "IAH": "Houston",
    "LAS": "Las Vegas",
    "MCO": "Orlando",
    "EWR": "Newark",
    "CLT": "Charlotte",
    "MSP": "Minneapolis",
    "DTW": "Detroit",
    "PHL": "Philadelphia",
    "LGA": "LaGuardia",
}
_AIRPORTS = json.dumps([{"iata": code, "city": city} for code, city in _CITIES.items()])


def user_of(tables: Tables, user_id: str) -> Record:
    """Raises: Refused."""
    if (user := tables.get("users", user_id)) is None:
        raise Refused(f"User {user_id} not found")
    return user


def reservation_of(tables: Tables, reservation_id: str) -> Record:
    """Raises: Refused."""
    if (reservation := tables.get("reservations", reservation_id)) is None:
        raise Refused(f"Reservation {reservation_id} not found")
    return reservation


def flight_of(tables: Tables, flight_number: str, date: str) -> tuple[Flight, Record]:
    """A flight and its day. Raises: Refused."""
    if (flight := timetable().by_number.get(flight_number)) is None:
        raise Refused(f"Flight {flight_number} not found")
    if (day := day_of(tables, flight_number, date)) is None:
        raise Refused(f"Flight {flight_number} not found on date {date}")
    return flight, day


def get_flight_status(tables: Tables, flight_number: str, date: str) -> str:
    """One of six words. Raises: Refused."""
    return str(flight_of(tables, flight_number, date)[1]["status"])


def get_reservation_details(tables: Tables, reservation_id: str) -> str:
    """A reservation. Raises: Refused."""
    return json.dumps(reservation_of(tables, reservation_id))


def get_user_details(tables: Tables, user_id: str) -> str:
    """A user. Raises: Refused."""
    return json.dumps(user_of(tables, user_id))


def list_all_airports(tables: Tables) -> str:
    """Codes and cities."""
    return _AIRPORTS


def search_direct_flight(tables: Tables, origin: str, destination: str, date: str) -> str:
    """Flights that can be booked. Their field `date` is null, as upstream."""
    flights = timetable().by_route.get((origin, destination), ())
    return json.dumps([_row(flight, day, None) for flight, day in _available(tables, flights, date)])


def search_onestop_flight(tables: Tables, origin: str, destination: str, date: str) -> str:
    """Pairs of flights that can be booked, the second leaving after the first arrives.

    As upstream, the next day's date is written without a leading zero, and so no flight is found that arrives on the
    second to ninth of May; and times are compared as text, where a `+1` counts for nothing.
    """
    pairs = []
    table = timetable()
    for flight, day in _available(tables, table.by_origin.get(origin, ()), date):
        onward = f"2024-05-{int(date[-2:]) + 1}" if "+1" in flight.arrival else date
        following = table.by_route.get((flight.destination, destination), ())
        for second, its_day in _available(tables, following, onward, flight.arrival):
            pairs.append([_row(flight, day, date), _row(second, its_day, onward)])
    return json.dumps(pairs)


def _available(
    tables: Tables, flights: Iterable[Flight], date: str, leave_after: str = ""
) -> Iterable[tuple[Flight, Record]]:
    for flight in flights:
        if flight.departure >= leave_after:
            day = day_of(tables, flight.number, date)
            if day is not None and day["status"] == "available":
                yield flight, day


def _row(flight: Flight, day: Record, date: str | None) -> Record:
    return {
        "flight_number": flight.number,
        "origin": flight.origin,
        "destination": flight.destination,
        "status": "available",
        "scheduled_departure_time_est": flight.departure,
        "scheduled_arrival_time_est": flight.arrival,
        "date": date,
        "available_seats": day["available_seats"],
        "prices": day["prices"],
    }
