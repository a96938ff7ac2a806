"""Random plays of the airline for `tau_differential_shops.py`; see `tau_plays_shops.py`."""

from typing import Any

from benchmarks.tau_plays_shops import Arguments, Plays

CABINS = ("business", "economy", "basic_economy")
DATES = tuple(f"2024-05-{day:02d}" for day in (1, 9, 10, 14, 15, 16, 18, 20, 22, 24, 26, 28, 29, 30, 31))


class AirlinePlays(Plays):
    """Plays of the airline. Its tables: users, reservations, days (by "number date"), and flights with their routes."""

    def names(self) -> list[str]:
        weights = {"book_reservation": 5, "send_certificate": 2, "cancel_reservation": 1}
        return [name for name in self.docs for _ in range(weights.get(name, 3 if name.startswith("update") else 1))]

    def reservation(self) -> dict[str, Any]:
        """A reservation of this user, seldom of another."""
        ids = self.user["reservations"] if self.pick.random() < 0.95 else list(self.tables["reservations"])
        every = self.tables["reservations"]
        found: dict[str, Any] = every.get(self.one(ids)) or next(iter(every.values()))
        return found

    def reservation_id(self) -> str:
        """Also of one that may have been booked before."""
        new = self.pick.random() < 0.15
        return self.pick.choice(("HATHAT", "HATHAU")) if new else str(self.reservation()["reservation_id"])

    def leg(self) -> dict[str, Any]:
        """A flight's day on which it can be booked, mostly."""
        days = self.tables["days"]
        keys = self.available if self.pick.random() < 0.9 else self.all_days
        number, date = self.pick.choice(keys).split(" ")
        return {"flight_number": number, "date": date, "day": days[f"{number} {date}"]}

    @property
    def all_days(self) -> list[str]:
        if "_all" not in self.__dict__:
            self._all = sorted(self.tables["days"])
        return self._all

    @property
    def available(self) -> list[str]:
        if "_free" not in self.__dict__:
            self._free = [key for key in self.all_days if self.tables["days"][key]["status"] == "available"]
        return self._free

    def people(self, count: int) -> list[dict[str, Any]]:
        names = [{**self.user["name"], "dob": self.user["dob"]}, *self.user["saved_passengers"]]
        return [self.pick.choice(names) for _ in range(count)]

    def shared(self, price: int) -> list[dict[str, Any]]:
        """Payments that add up, from one method or several; sometimes one of them twice."""
        methods = list(self.user["payment_methods"]) or ["nothing"]
        count = self.pick.choice((1, 1, 1, 2, 2, 3))
        chosen = [self.pick.choice(methods) for _ in range(count)]
        if self.pick.random() < 0.15:
            chosen[-1] = f"certificate_{self.pick.choice((3221322, 3221323))}"
        small = [self.pick.choice((0, 1, 20, 50, -30)) for _ in chosen[1:]]
        amounts = [price - sum(small), *small]
        if self.pick.random() < 0.03:
            amounts = [price - 10**308, 10**308, *small[1:]][: len(chosen)]
        return [{"payment_id": name, "amount": amount} for name, amount in zip(chosen, amounts, strict=False)]

    def book_reservation(self) -> Arguments:
        legs = [self.leg() for _ in range(self.pick.choice((0, 1, 1, 1, 2, 2, 3)))]
        if legs and self.pick.random() < 0.1:
            legs.append(legs[0])
        cabin, people, bags = self.pick.choice(CABINS), self.pick.choice((0, 1, 1, 1, 2, 3)), self.pick.randint(0, 3)
        insurance = self.pick.choice(("yes", "no"))
        price = sum(leg["day"].get("prices", {}).get(cabin, 0) for leg in legs) * people + 50 * bags
        price += 30 * people * (insurance == "yes") + self.pick.choice((0, 0, 0, 0, 0, 1))
        return {
            "user_id": self.user["user_id"],
            "origin": self.pick.choice(("SFO", "JFK", "")),
            "destination": "LAX",
            "flight_type": self.pick.choice(("one_way", "round_trip")),
            "cabin": cabin,
            "flights": [{"flight_number": leg["flight_number"], "date": leg["date"]} for leg in legs],
            "passengers": self.people(people),
            "payment_methods": self.shared(price),
            "total_baggages": bags + 1,
            "nonfree_baggages": bags,
            "insurance": insurance,
        }

    def cancel_reservation(self) -> Arguments:
        return {"reservation_id": self.reservation_id()}

    get_reservation_details = cancel_reservation

    def send_certificate(self) -> Arguments:
        return {"user_id": self.user["user_id"], "amount": self.pick.choice((50, 100, 0, -5, 2**60 + 1, 10**17, 150.0))}

    def update_reservation_baggages(self) -> Arguments:
        nonfree = self.pick.choice((0, 1, 2, 3, 4, -1, 2000))
        return {
            "reservation_id": self.reservation_id(),
            "total_baggages": nonfree + self.pick.randint(0, 2),
            "nonfree_baggages": nonfree,
            "payment_id": self.payment(),
        }

    def update_reservation_flights(self) -> Arguments:
        reservation = self.reservation()
        legs = [
            self.pick.choice(reservation["flights"]) for _ in range(self.pick.randint(0, 2)) if reservation["flights"]
        ]
        if self.pick.random() < 0.4:
            legs = list(reservation["flights"])
        legs += [self.leg() for _ in range(self.pick.choice((0, 0, 1)))]
        return {
            "reservation_id": reservation["reservation_id"],
            "cabin": self.pick.choice((reservation["cabin"], *CABINS)),
            "flights": [{"flight_number": leg["flight_number"], "date": leg["date"]} for leg in legs],
            "payment_id": self.payment(),
        }

    def update_reservation_passengers(self) -> Arguments:
        reservation = self.reservation()
        count = len(reservation["passengers"]) + self.pick.choice((0, 0, 0, 0, 1))
        return {"reservation_id": reservation["reservation_id"], "passengers": self.people(count)}

    def route(self) -> Arguments:
        flight = self.tables["flights"][self.one(self.tables["flights"])]
        other = self.tables["flights"][self.one(self.tables["flights"])]
        last = self.pick.choice((flight, other))["destination"]
        return {"origin": flight["origin"], "destination": last, "date": self.pick.choice(DATES)}

    search_direct_flight = route
    search_onestop_flight = route

    def get_flight_status(self) -> Arguments:
        leg = self.leg()
        date = self.pick.choice((leg["date"], *DATES))
        return {"flight_number": leg["flight_number"], "date": date}
