"""TravelAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said

CITIES = {
    "RMS": "Rivermist",
    "SBK": "Stonebrook",
    "SFO": "San Francisco",
    "LAX": "Los Angeles",
    "JFK": "New York",
    "ORD": "Chicago",
    "BOS": "Boston",
    "OKD": "Oakendale",
}
ROUTES = (
    *(("SFO", "LAX"), ("SFO", "JFK"), ("SFO", "ORD"), ("SFO", "BOS"), ("SFO", "RMS"), ("SFO", "SBK"), ("LAX", "SFO")),
    *(("LAX", "JFK"), ("LAX", "ORD"), ("LAX", "BOS"), ("LAX", "OKD"), ("JFK", "ORD"), ("JFK", "BOS"), ("JFK", "RMS")),
    *(("JFK", "LAX"), ("ORD", "LAX"), ("ORD", "BOS"), ("BOS", "RMS"), ("RMS", "BOS"), ("RMS", "JFK"), ("RMS", "LAX")),
    *(("RMS", "SBK"), ("SBK", "OKD"), ("OKD", "LAX")),
)
CURRENCIES = ("RMB", "EUR", "JPY", "GBP", "CAD", "AUD", "INR", "MXN")
NEW = ("the flight I just booked", "my new booking", "that flight")


class Travel(Domain):
    """One credit card, one booking, and a session whose token the user says once."""

    owner = "TravelAPI"

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
        if token not in map(str, self.world.noted.values()):
            self.tell_once("token", f"my access token is {self.world.words(token)}")
        return token

    def route(self) -> Any:
        origin, target = self.random.choice(ROUTES)
        self.world.drawn["origin"], self.world.drawn["target"] = origin, target
        self.world.drawn["from_city"], self.world.drawn["to_city"] = CITIES[origin], CITIES[target]
        return True

    def cabin(self) -> Any:
        return self.random.choice(("economy", "business", "first"))

    def cheap_cabin(self) -> Any:
        return self.random.choice(("economy", "business"))

    def card(self) -> Any:
        return self.any_of(name for name in self.instance.credit_card_list if name.startswith("card_"))

    def booking(self) -> Any:
        return self.referred(
            "booking", [name for name in self.instance.booking_record if name.isdigit()], NEW, "booking {}", share=0.7
        )

    def cover(self) -> Any:
        return self.random.choice(("travel", "medical", "luggage"))

    def premium(self) -> Any:
        return self.names.number(20, 400)

    def message(self) -> Any:
        return self.names.sentence()

    def city(self) -> Any:
        return self.any_of(CITIES.values())

    def currency(self) -> Any:
        return self.random.choice(CURRENCIES)

    def money(self) -> Any:
        return self.names.number(20, 900)

    def limit(self) -> Any:
        return self.names.number(500, 9000)

    def card_number(self) -> Any:
        return str(self.names.number(10**15, 10**16 - 1))

    def expiry(self) -> Any:
        return f"{self.random.randint(1, 12):02d}/20{self.random.randint(27, 35)}"

    def person(self) -> Any:
        return self.names.person()

    def code(self) -> Any:
        return self.names.number(100, 999)

    def traveller(self) -> Any:
        first, last = self.instance.user_first_name, self.instance.user_last_name
        self.world.drawn["first_name"], self.world.drawn["last_name"] = first, last
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
        self.world.drawn["new_first"], self.world.drawn["new_last"] = first, last
        return f"{first} {last}"

    def client(self) -> Any:
        return self.names.account()

    def secret(self) -> Any:
        return self.names.account()

    def refresh(self) -> Any:
        return self.names.account()
