"""The airline's database, the tools that change nothing, and the look-ups which those that do share with them.

300 flights on 30 days, 500 users, 2,000 reservations. What changes of a flight are the seats of one day, so the days
are records of their own, named `HAT001 2024-05-16`; all attempts share what is fixed of a flight.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tau_env.attempt import Refused
from tau_env.records import Base, Record, Tables, read_base

_FLIGHT = ("flight_number", "origin", "destination", "scheduled_departure_time_est", "scheduled_arrival_time_est")
_BOOKED = ("flight_number", "origin", "destination", "date", "price")
"""Fields of a reservation's flight, in the order in which models read them."""
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


@dataclass(frozen=True, slots=True)
class Flight:
    """What never changes of a flight."""

    number: str
    origin: str
    destination: str
    departure: str
    arrival: str


@dataclass(frozen=True, slots=True)
class Timetable:
    """The flights, in the order of the file."""

    by_number: Mapping[str, Flight]
    by_origin: Mapping[str, tuple[Flight, ...]]
    by_route: Mapping[tuple[str, str], tuple[Flight, ...]]


@cache
def _loaded() -> tuple[Base, Timetable]:
    raw = read_base("airline")
    rows = raw.tables["flights"]
    flights = {number: Flight(*(row[field] for field in _FLIGHT)) for number, row in rows.items()}
    by_origin: dict[str, tuple[Flight, ...]] = {}
    by_route: dict[tuple[str, str], tuple[Flight, ...]] = {}
    for flight in flights.values():
        route = (flight.origin, flight.destination)
        by_origin[flight.origin] = (*by_origin.get(flight.origin, ()), flight)
        by_route[route] = (*by_route.get(route, ()), flight)
    reservations = {}
    for key, row in raw.tables["reservations"].items():
        booked = [{field: flight[field] for field in _BOOKED} for flight in row["flights"]]
        reservations[key] = {**row, "flights": booked, "status": None}
    days = {day_key(number, date): day for number, row in rows.items() for date, day in row["dates"].items()}
    tables = {"users": raw.tables["users"], "reservations": reservations, "days": days}
    return Base(raw.identity, tables), Timetable(flights, by_origin, by_route)


def base() -> Base:
    """The database, read once.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    return _loaded()[0]


def day_key(flight_number: str, date: str) -> str:
    """The key of a flight's day in the table `days`. Numbers have no blank, so no two pairs share one."""
    return f"{flight_number} {date}"


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
    if (flight := _loaded()[1].by_number.get(flight_number)) is None:
        raise Refused(f"Flight {flight_number} not found")
    if (day := tables.get("days", day_key(flight_number, date))) is None:
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
    flights = _loaded()[1].by_route.get((origin, destination), ())
    return json.dumps([_row(flight, day, None) for flight, day in _available(tables, flights, date)])


def search_onestop_flight(tables: Tables, origin: str, destination: str, date: str) -> str:
    """Pairs of flights that can be booked, the second leaving after the first arrives.

    As upstream, the next day's date is written without a leading zero, and so no flight is found that arrives on the
    second to ninth of May; and times are compared as text, where a `+1` counts for nothing.
    """
    pairs = []
    table = _loaded()[1]
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
            day = tables.get("days", day_key(flight.number, date))
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
