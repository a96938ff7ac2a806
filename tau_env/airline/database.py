"""The airline's database: 300 flights on 30 days, 500 users, 2,000 reservations, and the flights by where they go.

What changes of a flight are the seats of one day, so the days are records of their own, named `HAT001 2024-05-16`; what
is fixed of a flight stands in an index that all attempts share.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tau_env.records import Base, Record, Tables
from tau_env.task_files import Each, load_records, shaped

_PERSON = dict.fromkeys(("first_name", "last_name", "dob"))
_CARD = {"source": None, "id": None, "amount": float}
_PAYMENT_METHOD = (
    "source",
    {
        "credit_card": {"source": None, "id": None, "brand": None, "last_four": None},
        "gift_card": _CARD,
        "certificate": _CARD,
    },
)
_DEPARTED, _EXPECTED = "actual_departure_time_est", "estimated_arrival_time_est"
_DAY = (
    "status",
    {
        "available": {"status": None, "available_seats": None, "prices": None},
        "landed": {"status": None, _DEPARTED: None, "actual_arrival_time_est": None},
        "cancelled": {"status": None},
        "delayed": {"status": None, "estimated_departure_time_est": None, _EXPECTED: None},
        "flying": {"status": None, _DEPARTED: None, _EXPECTED: None},
        "on time": {"status": None, "estimated_departure_time_est": None, _EXPECTED: None},
    },
)
_FLIGHT = ("flight_number", "origin", "destination", "scheduled_departure_time_est", "scheduled_arrival_time_est")
_SHAPES = {
    "users": {
        "user_id": None,
        "name": {"first_name": None, "last_name": None},
        "address": dict.fromkeys(("address1", "address2", "city", "country", "state", "zip")),
        "email": None,
        "dob": None,
        "payment_methods": Each(_PAYMENT_METHOD),
        "saved_passengers": [_PERSON],
        "membership": None,
        "reservations": None,
    },
    "reservations": {
        "reservation_id": None,
        "user_id": None,
        "origin": None,
        "destination": None,
        "flight_type": None,
        "cabin": None,
        "flights": [dict.fromkeys(("flight_number", "origin", "destination", "date", "price"))],
        "passengers": [_PERSON],
        "payment_history": [{"payment_id": None, "amount": int}],
        "created_at": None,
        "total_baggages": int,
        "nonfree_baggages": int,
        "insurance": None,
        "status": None,
    },
}
"""Fields in the order in which models read them."""


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
    identity, tables = load_records("airline")
    flights = {number: Flight(*(row[field] for field in _FLIGHT)) for number, row in tables["flights"].items()}
    by_origin: dict[str, tuple[Flight, ...]] = {}
    by_route: dict[tuple[str, str], tuple[Flight, ...]] = {}
    for flight in flights.values():
        route = (flight.origin, flight.destination)
        by_origin[flight.origin] = (*by_origin.get(flight.origin, ()), flight)
        by_route[route] = (*by_route.get(route, ()), flight)
    records = {name: shaped(tables[name], Each(shape)) for name, shape in _SHAPES.items()}
    records["days"] = {
        day_key(number, date): shaped(day, _DAY)
        for number, row in tables["flights"].items()
        for date, day in row["dates"].items()
    }
    return Base(identity, records), Timetable(flights, by_origin, by_route)


def base() -> Base:
    """The database, read once.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    return _loaded()[0]


def timetable() -> Timetable:
    """The flights, read once.

    Raises:
        SourceError: the file is missing or not the pinned one.
    """
    return _loaded()[1]


def day_key(flight_number: str, date: str) -> str:
    """The key of a flight's day in the table `days`. Numbers have no blank, so no two pairs share one."""
    return f"{flight_number} {date}"


def day_of(tables: Tables, flight_number: str, date: str) -> Record | None:
    """A flight's day, None where it does not fly."""
    return tables.get("days", day_key(flight_number, date))
