"""Rules for every class: names and arguments that do not fit the documentation.

A withheld function gets exactly the hint of an unknown one: the closest visible names.
"""

import difflib
import re

from bfcl_env.augmentation.rule import LIMITS, Rule, Situation, listing, rules_of, says, sentences, short
from bfcl_env.execution import schema_problem
from interaction.outcome import ErrorKind

RULES: list[Rule] = []
rule = rules_of("", RULES)
NO_FUNCTION = frozenset({ErrorKind.UNKNOWN_FUNCTION, ErrorKind.WITHHELD_FUNCTION})
BAD_ARGUMENTS = frozenset({ErrorKind.BAD_ARGUMENTS})

SOURCES = {
    **{"access_token": "authenticate_travel", "booking_id": "get_booking_history", "card_id": "get_all_credit_cards"},
    **dict.fromkeys(("cityA", "cityB"), "get_zipcode_based_on_city"),
    **{"order_id": "get_order_history", "ticket_id": "get_user_tickets", "tweet_id": "search_tweets"},
    **dict.fromkeys(("receiver_id", "user_id"), "get_user_id"),
    **dict.fromkeys(("stock", "symbol"), "get_symbol_by_name"),
    **dict.fromkeys(("travel_from", "travel_to"), "get_nearest_airport_by_city"),
}
"""Arguments that another function supplies."""

ENUM = re.compile(r"(?:\[Enum\]|Options are|Here are the options):\s*(.+)", re.IGNORECASE | re.DOTALL)


def signature(situation: Situation) -> str:
    """The called function as documented."""
    required = situation.schema.get("required", ())
    parts = [
        f"{name}: {schema['type']}{'' if name in required else ' (optional)'}"
        for name, schema in situation.schema["properties"].items()
    ]
    return f"Call it as {situation.call.name}({', '.join(parts)})."


def documented(situation: Situation, argument: str) -> str:
    return situation.schema["properties"].get(argument, {}).get("description", "")


def description(situation: Situation, argument: str) -> str:
    """What the documentation says about one argument of the called function; empty if a withheld name is in it.

    Many functions are named by ordinary words, such as `find`.
    """
    text = documented(situation, argument).strip()
    if not text or set(re.findall(r"\w+", text)).intersection(situation.withheld):
        return ""
    return f"'{argument}': {text}{'' if text.endswith('.') else '.'}"


def options(situation: Situation, argument: str) -> tuple[str, ...]:
    """The values that the documentation allows for an argument; empty if it names none."""
    found = ENUM.search(documented(situation, argument))
    return tuple(re.findall(r"[\w-]+(?: [\w-]+)*", found.group(1))) if found else ()


@rule("", "", "cdd(folder='x')", errors=NO_FUNCTION)
def unknown_function(situation: Situation) -> str:
    name = situation.call.name[:100].rsplit(".", 1)[-1]
    none = "No function of this name is available."
    if name in situation.visible:
        return f"{none} Call it by its plain name: {name}."
    close = difflib.get_close_matches(name, sorted(situation.visible), n=3, cutoff=0.6)
    if close:
        return f"{none} The closest available ones: {', '.join(close)}. Call one of these if it does what is needed."
    return f"{none} Call one that is listed as available; if none can do it, tell the user what is missing."


@rule("", "", "ls(True, True)", errors=BAD_ARGUMENTS)
def too_many_positional(situation: Situation) -> str | None:
    if not situation.call.positional:
        return None
    return sentences("Too many arguments, or one given twice.", signature(situation))


@rule("", "", "cp(source='a')", errors=BAD_ARGUMENTS)
def missing_arguments(situation: Situation) -> str | None:
    required = set(situation.schema.get("required", ())).difference(situation.call.arguments)
    missing = [name for name in situation.schema["properties"] if name in required]
    if not missing:
        return None
    source = SOURCES.get(missing[0], "")
    supplied = f"{source} supplies '{missing[0]}'."
    return sentences(
        f"Missing: {listing(missing)}.",
        supplied if source in situation.visible else "Take it from what the user said, or ask the user.",
        signature(situation),
        description(situation, missing[0]),
    )


@rule("", "", "ls(path='x')", errors=BAD_ARGUMENTS)
def unknown_arguments(situation: Situation) -> str | None:
    unknown = [name for name in situation.call.arguments if name not in situation.schema["properties"]]
    if not unknown:
        return None
    return sentences(f"{situation.call.name} has no argument {short(unknown[0])}.", signature(situation))


@rule("", "", "cd(folder=5)", errors=BAD_ARGUMENTS)
def wrong_type(situation: Situation) -> str | None:
    problem = schema_problem(situation.call)
    named = re.search(r"argument '(\w+)'", problem or "")
    if problem is None or named is None:
        return None
    return sentences(
        f"{problem[0].upper()}{problem[1:]}.", description(situation, named.group(1)), signature(situation)
    )


rule(
    "",
    r"\[cut: the result has",
    *[f"post_tweet(content={'x' * 45_000!r})"] * 5,
    "search_tweets(keyword='x')",
    errors=LIMITS,
    scene="multi_turn_base_5",
    name="result_cut",
)(says("The result was too long to show in full. Ask for less, or go on with what is shown."))
