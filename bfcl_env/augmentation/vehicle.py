"""Rules for VehicleControlAPI: what has to be done before the engine starts, ranges, cities and zip codes."""

from functools import cache

from bfcl_env.augmentation.general import options
from bfcl_env.augmentation.rule import SILENT, Rule, Situation, listing, rules_of, says, sentences, short
from bfcl_env.source import load_class

RULES: list[Rule] = []
rule = rules_of("VehicleControlAPI", RULES)
CITIES = (
    *("Rivermist", "Stonebrook", "Maplecrest", "Silverpine", "Shadowridge", "Sunset Valley", "Oakendale", "Willowbend"),
    *("Crescent Hollow", "Autumnville", "San Francisco"),
)
"""All that `get_zipcode_based_on_city` knows, the same in every scenario."""
MORE_ZIPS = ("94704", "08540")
"""Codes with known distances whose city cannot be looked up."""


@cache
def distances() -> dict[str, tuple[str, ...]]:
    """Zip code to the codes with a known distance from there, asked from an instance of our own."""
    car = load_class("VehicleControlAPI")()
    car.long_context = False
    zips = [car.get_zipcode_based_on_city(city)["zipcode"] for city in CITIES] + list(MORE_ZIPS)
    return {start: tuple(end for end in zips if "distance" in car.estimate_distance(start, end)) for start in zips}


@rule("startEngine", "", "startEngine(ignitionMode='STOP')")
def engine_stopped(situation: Situation) -> str | None:
    if situation.argument("ignitionMode") != "STOP":
        return None
    return "In spite of this error the engine is stopped now; nothing more has to be done for that."


@rule("startEngine", "doors must be locked", "startEngine(ignitionMode='START')", scene="multi_turn_base_57")
def doors(situation: Situation) -> str:
    unlocked = [door for door, status in situation.instance.doorStatus.items() if status != "locked"]
    return sentences(
        "Lock all doors first, then start the engine.",
        situation.if_visible("lockDoors", f"Next: lockDoors(unlock=False, door={unlocked})." if unlocked else ""),
    )


rule("startEngine", "[Bb]rake", "startEngine(ignitionMode='START')", name="brake")(
    says(
        "The brake pedal must be pressed down fully first.",
        ("pressBrakePedal", "Next: pressBrakePedal(pedalPosition=1)."),
    )
)


@rule("startEngine setHeadlights displayCarStatus activateParkingBrake", "Invalid", "setHeadlights(mode='dim')")
def documented_option(situation: Situation) -> str | None:
    for name in situation.schema["properties"]:
        valid, value = options(situation, name), situation.argument(name)
        if valid and value is not None and value not in valid:
            return f"'{name}' must be one of {listing(valid)}, written exactly like this."
    return None


@rule("fillFuelTank startEngine", "tank|Fuel amount", "fillFuelTank(fuelAmount=60)")
def fuel(situation: Situation) -> str:
    level = f"it has {short(situation.instance.fuelLevel)} gallons now"
    return sentences(
        f"The tank holds 50 gallons; {situation.if_visible('displayCarStatus', level, 'it is not empty')}.",
        "'fuelAmount' comes on top of that: give zero or more, so that the sum does not exceed what it holds.",
    )


rule("adjustClimateControl", "Fan speed", "adjustClimateControl(temperature=20, fanSpeed=200)", name="fan_speed")(
    says("'fanSpeed' must be a whole number from 0 to 100.")
)
rule("pressBrakePedal", "Pedal position", "pressBrakePedal(pedalPosition=50)", name="pedal")(
    says("'pedalPosition' must be a number from 0 (released) to 1 (pressed down fully).")
)
rule(
    "setCruiseControl",
    "Start the engine",
    "setCruiseControl(speed=50, activate=True, distanceToNextVehicle=10)",
    name="engine_needed",
)(
    says(
        "The engine is not running.",
        ("startEngine", "Next: startEngine(ignitionMode='START'), with all doors locked and the brake pressed fully."),
    )
)
rule(
    "setCruiseControl",
    "Invalid speed",
    *("pressBrakePedal(pedalPosition=1)", "startEngine(ignitionMode='START')"),
    "setCruiseControl(speed=7, activate=True, distanceToNextVehicle=10)",
    scene="multi_turn_base_50",
    name="cruise_speed",
)(says("'speed' must be from 0 to 120 and a multiple of 5."))


@rule("lockDoors", "^Error during execution: ", "lockDoors(unlock=False, door=['trunk'])")
def door_name(situation: Situation) -> str:
    return f"'door' must be a list of door names, from {listing(situation.instance.doorStatus)}."


rule("get_outside_temperature_from_weather_com", "404", "get_outside_temperature_from_weather_com()", name="weather")(
    says(
        "This source is never available; do not call it again.",
        (
            "get_outside_temperature_from_google",
            "Next: get_outside_temperature_from_google().",
            "Tell the user so.",
        ),
    )
)


@rule("estimate_distance", "distance not found", "estimate_distance(cityA='Rivermist', cityB='94016')")
def zip_code(situation: Situation) -> str:
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


@rule("get_zipcode_based_on_city", '"00000"', "get_zipcode_based_on_city(city='San Francisco, CA')", errors=SILENT)
def city_name(situation: Situation) -> str:
    given = situation.argument("city")
    return (
        f"00000 stands for an unknown city: {short(given)}. Give only the name; known: {listing(CITIES, given, 170)}."
    )
