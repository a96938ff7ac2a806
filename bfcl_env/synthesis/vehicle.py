"""VehicleControlAPI. `get_outside_temperature_from_weather_com` always fails, and is in no task."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Said
from bfcl_env.synthesis.words import LAST_NAMES

DOORS = {"driver": "driver", "passenger": "passenger", "rear_left": "rear left", "rear_right": "rear right"}
ZIP_CODES = {
    "Rivermist": "83214",
    "Stonebrook": "74532",
    "Maplecrest": "56108",
    "Silverpine": "62947",
    "Oakendale": "47329",
    "Willowbend": "52013",
    "San Francisco": "94016",
}
ROADS = (
    *(("Rivermist", "Stonebrook"), ("Maplecrest", "Silverpine"), ("Oakendale", "Willowbend")),
    *(("San Francisco", "Rivermist"), ("Silverpine", "Oakendale"), ("San Francisco", "Silverpine")),
    ("Stonebrook", "San Francisco"),
)


class Vehicle(Domain):
    """A car; its doors, lights, brake and engine are drawn."""

    owner = "VehicleControlAPI"

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

    def _doors(self, status: str) -> Any:
        return [door for door, now in self.instance.doorStatus.items() if now == status] or None

    def _some(self, doors: list[str] | None) -> Any:
        if not doors:
            return None
        chosen = self.random.sample(doors, self.random.randint(1, len(doors)))
        *first, last = [DOORS[door] for door in chosen]
        return Said(chosen, (f"{', '.join(first)} and {last}" if first else last) + " door" + "s" * bool(first))

    def open_doors(self) -> Any:
        return self._some(self._doors("unlocked"))

    def locked_doors(self) -> Any:
        return self._some(self._doors("locked"))

    def all_open(self) -> Any:
        return self._doors("unlocked")

    def all_locked(self) -> Any:
        return not self._doors("unlocked")

    def stopped(self) -> Any:
        return self.instance.engine_state == "stopped"

    def running(self) -> Any:
        return self.instance.engine_state == "running"

    def pedal_up(self) -> Any:
        return self.instance.brakePedalStatus == "released"

    def pedal_down(self) -> Any:
        return self.instance.brakePedalStatus == "pressed"

    def engaged(self) -> Any:
        return self.instance.parkingBrakeStatus == "engaged"

    def released(self) -> Any:
        return not self.engaged()

    def lights_on(self) -> Any:
        return self.instance.headLightStatus == "on"

    def lights_off(self) -> Any:
        return not self.lights_on()

    def gallons(self) -> Any:
        most = int(49 - self.instance.fuelLevel)
        return self.random.randint(1, most) if most > 0 else None

    def litres(self) -> Any:
        most = int((49 - self.instance.fuelLevel) * 3.7)
        return self.random.randint(4, most) if most > 4 else None

    def degrees(self) -> Any:
        return self.random.randint(16, 29)

    def fan(self) -> Any:
        return self.random.randint(5, 95)

    def air(self) -> Any:
        return self.random.choice(("auto", "cool", "heat", "defrost"))

    def device(self) -> Any:
        return self.random.choice(("fuel", "battery", "doors", "climate", "headlights", "engine"))

    def position(self) -> Any:
        return self.random.randint(1, 9) / 10

    def speed(self) -> Any:
        return self.random.randint(4, 20) * 5

    def gap(self) -> Any:
        return self.random.randint(20, 99)

    def address(self) -> Any:
        return (
            f"{self.names.number(10, 999)} {self.random.choice(LAST_NAMES)} Street, {self.random.choice([*ZIP_CODES])}"
        )

    def road(self) -> Any:
        first, second = self.random.choice(ROADS)
        drawn = self.world.drawn
        drawn["city"], drawn["second_city"] = first, second
        drawn["zip"], drawn["second_zip"] = ZIP_CODES[first], ZIP_CODES[second]
        return True

    def town(self) -> Any:
        return self.any_of(ZIP_CODES)

    def volume(self) -> Any:
        return self.random.randint(2, 90)

    def miles(self) -> Any:
        return self.names.number(20, 900)

    def text(self) -> Any:
        return self.names.sentence()
