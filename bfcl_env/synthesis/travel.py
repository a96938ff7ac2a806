"""Flights and cars."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said, between, joined, named, one_of, part_number, state
from bfcl_env.synthesis.words import LAST_NAMES, Names

CITIES = {
    **{"RMS": "Rivermist", "SBK": "Stonebrook", "SFO": "San Francisco", "LAX": "Los Angeles", "JFK": "New York"},
    **{"ORD": "Chicago", "BOS": "Boston", "OKD": "Oakendale"},
}
ROUTES = (
    *(("SFO", "LAX"), ("SFO", "JFK"), ("SFO", "ORD"), ("SFO", "BOS"), ("SFO", "RMS"), ("SFO", "SBK"), ("LAX", "SFO")),
    *(("LAX", "JFK"), ("LAX", "ORD"), ("LAX", "BOS"), ("LAX", "OKD"), ("JFK", "ORD"), ("JFK", "BOS"), ("JFK", "RMS")),
    *(("JFK", "LAX"), ("ORD", "LAX"), ("ORD", "BOS"), ("BOS", "RMS"), ("RMS", "BOS"), ("RMS", "JFK"), ("RMS", "LAX")),
    *(("RMS", "SBK"), ("SBK", "OKD"), ("OKD", "LAX")),
)


class Travel(Domain):
    """One credit card, one booking, and a session whose token the user says once."""

    owner = "TravelAPI"
    new = ("the flight I just booked", "my new booking", "that flight")
    cabin = one_of("economy", "business", "first")
    cheap_cabin = one_of("economy", "business")
    cover = one_of("travel", "medical", "luggage")
    premium = part_number(20, 400)
    message = named(Names.sentence)
    city = one_of(*CITIES.values())
    currency = one_of("RMB", "EUR", "JPY", "GBP", "CAD", "AUD", "INR", "MXN")
    money = part_number(20, 900)
    limit = part_number(500, 9000)
    code = part_number(100, 999)
    person = named(Names.person)
    client = secret = refresh = named(Names.account)

    def start(self) -> dict[str, Any]:
        first, last = self.names.person().split()
        origin, target = self.random.choice(ROUTES)
        card = f"card_{self.names.number(1000, 9999)}"
        cards = {
            card: {
                "card_number": str(self.random.randint(10**15, 10**16 - 1)),
                "expiration_date": "06/2030",
                "cardholder_name": f"{first} {last}",
                "card_verification_number": self.random.randint(100, 999),
                "balance": float(self.random.randint(20, 80) * 1000),
            }
        }
        booking = {
            "card_id": card,
            "travel_date": self.day(),
            "travel_from": origin,
            "travel_to": target,
            "travel_class": "economy",
            "travel_cost": 300.0,
            "transaction_id": str(self.random.randint(10**7, 10**8 - 1)),
        }
        return {
            "random_seed": self.random.randint(1, 10**6),
            "credit_card_list": cards,
            "booking_record": {str(self.names.number(10**6, 10**7 - 1)): booking},
            "access_token": str(self.names.number(100000, 999999)),
            "token_type": "Bearer",
            "token_expires_in": 1000,
            "token_scope": "read_write",
            "user_first_name": first,
            "user_last_name": last,
            "budget_limit": 1000.0,
        }

    def day(self) -> str:
        return f"2026-{self.random.randint(1, 12):02d}-{self.random.randint(1, 28):02d}"

    def token(self) -> Any:
        token = self.instance.access_token
        if token not in map(str, self.world.noted.values()) and "token" not in self.world.told:
            self.world.told.add("token")
            self.world.preface.append(f"my access token is {self.world.words(token)}")
        return token

    def route(self) -> Any:
        origin, target = self.random.choice(ROUTES)
        self.world.drawn |= {"origin": origin, "target": target}
        self.world.drawn |= {"from_city": CITIES[origin], "to_city": CITIES[target]}
        return True

    def card(self) -> Any:
        return self.any_of(name for name in self.instance.credit_card_list if name.startswith("card_"))

    def booking(self) -> Any:
        return self.referred("booking", [name for name in self.instance.booking_record if name.isdigit()], share=0.7)

    def card_number(self) -> Any:
        return str(self.names.number(10**15, 10**16 - 1))

    def expiry(self) -> Any:
        return f"{self.random.randint(1, 12):02d}/20{self.random.randint(27, 35)}"

    def traveller(self) -> Any:
        first, last = self.instance.user_first_name, self.instance.user_last_name
        self.world.drawn |= {"first_name": first, "last_name": last}
        return Said(f"{first} {last}", self.world.words(f"{first} {last}"))

    def birthday(self) -> Any:
        return f"19{self.random.randint(50, 99)}-{self.random.randint(1, 12):02d}-{self.random.randint(10, 28)}"

    def passport(self) -> Any:
        return f"US{self.names.number(100000, 999999)}"

    def new_traveller(self) -> Any:
        if "authenticated" in self.world.told:
            return None
        self.world.told |= {"authenticated", "token"}  # the result has the new token
        first, last = self.names.person().split()
        self.world.drawn |= {"new_first": first, "new_last": last}
        return f"{first} {last}"


DOORS = {"driver": "driver", "passenger": "passenger", "rear_left": "rear left", "rear_right": "rear right"}
ZIP_CODES = {
    **{"Rivermist": "83214", "Stonebrook": "74532", "Maplecrest": "56108", "Silverpine": "62947"},
    **{"Oakendale": "47329", "Willowbend": "52013", "San Francisco": "94016"},
}
ROADS = (
    *(("Rivermist", "Stonebrook"), ("Maplecrest", "Silverpine"), ("Oakendale", "Willowbend")),
    *(("San Francisco", "Rivermist"), ("Silverpine", "Oakendale"), ("San Francisco", "Silverpine")),
    ("Stonebrook", "San Francisco"),
)


class Vehicle(Domain):
    """A car; its doors, lights, brake and engine are drawn.

    `get_outside_temperature_from_weather_com` always fails, and is in no task.
    """

    owner = "VehicleControlAPI"
    stopped = state("engine_state", "stopped")
    running = state("engine_state", "running")
    pedal_up = state("brakePedalStatus", "released")
    pedal_down = state("brakePedalStatus", "pressed")
    engaged = state("parkingBrakeStatus", "engaged")
    released = state("parkingBrakeStatus", "released")
    lights_on = state("headLightStatus", "on")
    lights_off = state("headLightStatus", "off")
    degrees = between(16, 29)
    fan = between(5, 95)
    air = one_of("auto", "cool", "heat", "defrost")
    device = one_of("fuel", "battery", "doors", "climate", "headlights", "engine")
    gap = between(20, 99)
    town = one_of(*ZIP_CODES)
    volume = between(2, 90)
    miles = part_number(20, 900)
    text = named(Names.sentence)

    def start(self) -> dict[str, Any]:
        sides = (f"{end}{side}TirePressure" for end in ("front", "rear") for side in ("Left", "Right"))
        return {
            "random_seed": self.random.randint(1, 10**6),
            "fuelLevel": float(self.random.randint(2, 30)),
            "batteryVoltage": self.random.randint(110, 140) / 10,
            "engineState": self.random.choice(("running", "stopped", "stopped")),
            "doorStatus": {door: self.random.choice(("locked", "unlocked")) for door in DOORS},
            "acTemperature": float(self.random.randint(16, 28)),
            "fanSpeed": self.random.randint(10, 90),
            "acMode": "auto",
            "humidityLevel": float(self.random.randint(30, 70)),
            "headLightStatus": self.random.choice(("on", "off")),
            "parkingBrakeStatus": self.random.choice(("released", "engaged")),
            "brakePedalStatus": "released",
            "destination": "None",
            **{side: float(self.random.randint(28, 36)) for side in sides},
        }

    def _doors(self, status: str) -> list[str]:
        return [door for door, now in self.instance.doorStatus.items() if now == status]

    def _some(self, doors: list[str]) -> Any:
        if not doors:
            return None
        chosen = self.random.sample(doors, self.random.randint(1, len(doors)))
        return Said(chosen, joined([DOORS[door] for door in chosen]) + " door" + "s" * (len(chosen) > 1))

    def open_doors(self) -> Any:
        return self._some(self._doors("unlocked"))

    def locked_doors(self) -> Any:
        return self._some(self._doors("locked"))

    def all_open(self) -> Any:
        return self._doors("unlocked") or None

    def all_locked(self) -> Any:
        return not self._doors("unlocked")

    def gallons(self) -> Any:
        most = int(49 - self.instance.fuelLevel)
        return self.random.randint(1, most) if most > 0 else None

    def litres(self) -> Any:
        most = int((49 - self.instance.fuelLevel) * 3.7)
        return self.random.randint(4, most) if most > 4 else None

    def position(self) -> Any:
        return self.random.randint(1, 9) / 10

    def speed(self) -> Any:
        return self.random.randint(4, 20) * 5

    def address(self) -> Any:
        return (
            f"{self.names.number(10, 999)} {self.random.choice(LAST_NAMES)} Street, {self.random.choice([*ZIP_CODES])}"
        )

    def road(self) -> Any:
        first, second = self.random.choice(ROADS)
        self.world.drawn |= {"city": first, "second_city": second}
        self.world.drawn |= {"zip": ZIP_CODES[first], "second_zip": ZIP_CODES[second]}
        return True
