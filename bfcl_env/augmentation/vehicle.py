"""Rules for VehicleControlAPI: what has to be done before the engine starts, ranges, cities and zip codes."""

from functools import cache

from bfcl_env.augmentation.general import options
from bfcl_env.augmentation.rule import SILENT, Rule, listing, sentences, short
from bfcl_env.augmentation.situation import Situation
from bfcl_env.source import load_class

_CLASS = "VehicleControlAPI"
CITIES = (
    "Rivermist",
    "Stonebrook",
    "Maplecrest",
    "Silverpine",
    "Shadowridge",
    "Sunset Valley",
    "Oakendale",
    "Willowbend",
    "Crescent Hollow",
    "Autumnville",
    "San Francisco",
)
"""All that `get_zipcode_based_on_city` knows, the same in every scenario."""
MORE_ZIPS = ("94704", "08540")
"""Codes with known distances whose city cannot be looked up."""


@cache
def distances() -> dict[str, tuple[str, ...]]:
    """Zip code to the codes with a known distance from there, asked from an instance of our own."""
    car = load_class(_CLASS)()
    car.long_context = False
    zips = [car.get_zipcode_based_on_city(city)["zipcode"] for city in CITIES] + list(MORE_ZIPS)
    return {start: tuple(end for end in zips if "distance" in car.estimate_distance(start, end)) for start in zips}


def engine_stopped(situation: Situation) -> str | None:
    """The engine stops whatever the result says."""
    if situation.argument("ignitionMode") != "STOP":
        return None
    return "In spite of this error the engine is stopped now; nothing more has to be done for that."


def doors(situation: Situation) -> str:
    """The doors to lock."""
    unlocked = [door for door, status in situation.instance.doorStatus.items() if status != "locked"]
    return sentences(
        "Lock all doors first, then start the engine.",
        situation.if_visible("lockDoors", f"Next: lockDoors(unlock=False, door={unlocked})." if unlocked else ""),
    )


def brake(situation: Situation) -> str:
    """Press it all the way."""
    press = "The brake pedal must be pressed down fully first."
    return sentences(press, situation.if_visible("pressBrakePedal", "Next: pressBrakePedal(pedalPosition=1)."))


def documented_option(situation: Situation) -> str | None:
    """The options of the first argument that has another value."""
    for name in situation.parameters:
        valid, value = options(situation, name), situation.argument(name)
        if valid and value is not None and value not in valid:
            return f"'{name}' must be one of {listing(valid)}, written exactly like this."
    return None


def fuel(situation: Situation) -> str:
    """What the tank holds."""
    level = f"it has {short(situation.instance.fuelLevel)} gallons now"
    return sentences(
        f"The tank holds 50 gallons; {situation.if_visible('displayCarStatus', level, 'it is not empty')}.",
        "'fuelAmount' comes on top of that: give zero or more, so that the sum does not exceed what it holds.",
    )


def fan_speed(situation: Situation) -> str:
    """The range."""
    return "'fanSpeed' must be a whole number from 0 to 100."


def pedal(situation: Situation) -> str:
    """The range."""
    return "'pedalPosition' must be a number from 0 (released) to 1 (pressed down fully)."


def engine_needed(situation: Situation) -> str:
    """Start it."""
    return sentences(
        "The engine is not running.",
        situation.if_visible(
            "startEngine", "Next: startEngine(ignitionMode='START'), with all doors locked and the brake pressed fully."
        ),
    )


def cruise_speed(situation: Situation) -> str:
    """The range."""
    return "'speed' must be from 0 to 120 and a multiple of 5."


def door_name(situation: Situation) -> str:
    """The names of the doors."""
    return f"'door' must be a list of door names, from {listing(situation.instance.doorStatus)}."


def weather(situation: Situation) -> str:
    """The other source."""
    return sentences(
        "This source is never available; do not call it again.",
        situation.if_visible(
            "get_outside_temperature_from_google",
            "Next: get_outside_temperature_from_google().",
            "Tell the user so.",
        ),
    )


def zip_code(situation: Situation) -> str:
    """Names have to be turned into codes, or which distances are known."""
    given = [situation.argument("cityA"), situation.argument("cityB")]
    wrong = [value for value in given if value not in distances()]
    if not wrong:
        return (
            f"No distance is known between {given[0]} and {given[1]}; from {given[0]} only to "
            f"{', '.join(distances()[given[0]])}, from {given[1]} only to {', '.join(distances()[given[1]])}. "
            "Go by way of one of these."
        )
    name = short(wrong[0]) if wrong[0] in CITIES else "..."
    return sentences(
        f"{short(wrong[0])} is not a known zip code. Distances are known between zip codes of cities.",
        situation.if_visible("get_zipcode_based_on_city", f"get_zipcode_based_on_city(city={name}) gives it."),
        f"Known: {', '.join(distances())}.",
    )


def city_name(situation: Situation) -> str:
    """The cities as they have to be written."""
    given = situation.argument("city")
    return (
        f"00000 stands for an unknown city: {short(given)}. Give only the name; known: {listing(CITIES, given, 170)}."
    )


RULES = (
    Rule("engine_stopped", _CLASS, "startEngine", "", engine_stopped, ("startEngine(ignitionMode='STOP')",)),
    Rule(
        "doors",
        _CLASS,
        "startEngine",
        "doors must be locked",
        doors,
        ("startEngine(ignitionMode='START')",),
        scene="multi_turn_base_57",
    ),
    Rule(
        "brake",
        _CLASS,
        "startEngine",
        "[Bb]rake",
        brake,
        ("startEngine(ignitionMode='START')",),
    ),
    Rule(
        "documented_option",
        _CLASS,
        "startEngine setHeadlights displayCarStatus activateParkingBrake",
        "Invalid",
        documented_option,
        ("setHeadlights(mode='dim')",),
    ),
    Rule("fuel", _CLASS, "fillFuelTank startEngine", "tank|Fuel amount", fuel, ("fillFuelTank(fuelAmount=60)",)),
    Rule(
        "fan_speed",
        _CLASS,
        "adjustClimateControl",
        "Fan speed",
        fan_speed,
        ("adjustClimateControl(temperature=20, fanSpeed=200)",),
    ),
    Rule("pedal", _CLASS, "pressBrakePedal", "Pedal position", pedal, ("pressBrakePedal(pedalPosition=50)",)),
    Rule(
        "engine_needed",
        _CLASS,
        "setCruiseControl",
        "Start the engine",
        engine_needed,
        ("setCruiseControl(speed=50, activate=True, distanceToNextVehicle=10)",),
    ),
    Rule(
        "cruise_speed",
        _CLASS,
        "setCruiseControl",
        "Invalid speed",
        cruise_speed,
        (
            "pressBrakePedal(pedalPosition=1)",
            "startEngine(ignitionMode='START')",
            "setCruiseControl(speed=7, activate=True, distanceToNextVehicle=10)",
        ),
        scene="multi_turn_base_50",
    ),
    Rule(
        "door_name",
        _CLASS,
        "lockDoors",
        "^Error during execution: ",
        door_name,
        ("lockDoors(unlock=False, door=['trunk'])",),
    ),
    Rule(
        "weather",
        _CLASS,
        "get_outside_temperature_from_weather_com",
        "404",
        weather,
        ("get_outside_temperature_from_weather_com()",),
    ),
    Rule(
        "zip_code",
        _CLASS,
        "estimate_distance",
        "distance not found",
        zip_code,
        ("estimate_distance(cityA='Rivermist', cityB='94016')",),
    ),
    Rule(
        "city_name",
        _CLASS,
        "get_zipcode_based_on_city",
        '"00000"',
        city_name,
        ("get_zipcode_based_on_city(city='San Francisco, CA')",),
        SILENT,
    ),
)
