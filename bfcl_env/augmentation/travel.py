"""Rules for TravelAPI: the access token, cards, bookings, airports and routes."""

from functools import cache

from bfcl_env.augmentation.general import options
from bfcl_env.augmentation.rule import SILENT, Rule, Situation, listing, rules_of, says, sentences, short
from bfcl_env.source import load_class

RULES: list[Rule] = []
rule = rules_of("TravelAPI", RULES)
CLASSES = ("economy", "business", "first")


@cache
def destinations() -> dict[str, tuple[str, ...]]:
    """Airport code to the codes that flights from there go to, asked from an instance of our own."""
    travel = load_class("TravelAPI")()
    travel.long_context = False
    airports = travel.list_all_airports()

    def flies(start: str, end: str) -> bool:
        try:
            return bool(travel.get_flight_cost(start, end, "2024-01-01", CLASSES[0]))
        except ValueError:
            return False

    return {start: tuple(end for end in airports if flies(start, end)) for start in airports}


def _book(date: str, start: str, end: str) -> str:
    account = "access_token='abc123token', card_id='1234-5678-9012-3456'"
    return (
        f"book_flight({account}, travel_date='{date}', travel_from='{start}', travel_to='{end}', travel_class='first')"
    )


rule(
    "",
    "Token not initialized|Token expired|Invalid access token",
    "get_booking_history(access_token='wrong')",
    name="access_token",
)(
    says(
        "'access_token' must be the one that the last login returned or the user has given.",
        (
            "authenticate_travel",
            "If there is none, call authenticate_travel first; ask the user for credentials you do not know.",
            "If there is none, tell the user so.",
        ),
    )
)


@rule(
    "",
    "ard not registered",
    "get_credit_card_balance(access_token='abc123xyz', card_id='wrong')",
    scene="multi_turn_base_153",
)
def no_card(situation: Situation) -> str:
    cards, given = situation.instance.credit_card_list, situation.argument("card_id")
    is_number = given in {str(card.get("card_number")) for card in cards.values()}
    there = f"Registered ids: {listing(cards, given)}." if cards else "No card is registered."
    return sentences(
        f"{short(given)} is the number of a card, not its id." if is_number else f"No card has the id {short(given)}.",
        situation.if_visible("get_all_credit_cards", there, "Ask the user for the id."),
        situation.if_visible("register_credit_card", "register_credit_card registers a new card and returns its id."),
    )


rule(
    "register_credit_card",
    "Card already registered",
    "register_credit_card(access_token='abc123xyz', card_number='card1234', expiration_date='01/2030', "
    "cardholder_name='A', card_verification_number=1)",
    scene="multi_turn_base_153",
    name="card_registered",
)(says("This is the id of a registered card. Use it as card_id; nothing has to be registered."))
rule(
    "",
    "Balance not found|Error during execution: '",
    "cancel_booking(access_token='abc123xyz', booking_id='booking001')",
    scene="multi_turn_base_153",
    name="card_incomplete",
)(
    says(
        "The record of this card or booking is incomplete, so it cannot be used. Use another one, or tell the user so.",
        ("get_all_credit_cards", "get_all_credit_cards shows all cards."),
    )
)


@rule(
    "",
    "Booking not found",
    "retrieve_invoice(access_token='abc123xyz', booking_id='wrong')",
    scene="multi_turn_base_153",
)
def no_booking(situation: Situation) -> str:
    bookings, given = situation.instance.booking_record, situation.argument("booking_id")
    there = f"Bookings: {listing(bookings, given)}." if bookings else "There are no bookings."
    token = situation.argument("access_token")
    if token is None or token != situation.instance.access_token:
        there = "get_booking_history(access_token=...) lists all bookings."
    return sentences(
        "Give a 'booking_id'." if given is None else f"No booking has the id {short(given)}.",
        situation.if_visible("get_booking_history", there, "Ask the user for it."),
        situation.if_visible("book_flight", "book_flight makes a booking and returns its id."),
    )


@rule(
    "get_flight_cost book_flight",
    "airport",
    "get_flight_cost(travel_from='Paris', travel_to='LAX', travel_date='2024-01-01', travel_class='first')",
)
def airport(situation: Situation) -> str | None:
    given = (situation.argument("travel_from"), situation.argument("travel_to"))
    wrong = [value for value in given if value not in destinations() and isinstance(value, str)]
    if not wrong:
        return None
    return sentences(
        f"{short(wrong[0])} is not an airport code. Codes: {', '.join(destinations())}.",
        situation.if_visible("get_nearest_airport_by_city", "get_nearest_airport_by_city gives the code for a city."),
    )


@rule(
    "get_flight_cost book_flight",
    "No available route",
    "get_flight_cost(travel_from='LHR', travel_to='LAX', travel_date='2024-01-01', travel_class='first')",
)
def route(situation: Situation) -> str:
    start, end = situation.argument("travel_from"), situation.argument("travel_to")
    goals = destinations().get(str(start), ())
    return sentences(
        f"Both codes are right, but no flight goes from {short(start)} to {short(end)}.",
        f"From {start} flights go to: {', '.join(goals)}." if goals else f"No flight starts in {start}.",
        "Choose another route with the user.",
    )


rule(
    "book_flight",
    "Invalid date format",
    _book("tomorrow", "SFO", "LAX"),
    scene="multi_turn_base_150",
    name="travel_date",
)(says("'travel_date' must be an existing date written as YYYY-MM-DD, such as 2024-01-31."))


@rule(
    "get_flight_cost book_flight",
    "Invalid travel class",
    "get_flight_cost(travel_from='SFO', travel_to='LAX', travel_date='2024-01-01', travel_class='second')",
)
def travel_class(situation: Situation) -> str:
    given = situation.shown("travel_class")
    return f"{given} is not a class. 'travel_class' must be one of {listing(CLASSES)}."


@rule("book_flight", "Insufficient funds", _book("2024-01-01", "JFK", "PEK"), scene="multi_turn_base_150")
def card_balance(situation: Situation) -> str:
    card = situation.argument("card_id")
    balance = situation.instance.credit_card_list[card].get("balance")
    return sentences(
        f"The card {short(card)} does not have enough money for this flight.",
        situation.if_visible("get_all_credit_cards", f"Its balance is {short(balance)}."),
        situation.if_visible("get_flight_cost", "get_flight_cost gives the price of a cheaper class or date."),
        "Use another card, or ask the user.",
    )


@rule("book_flight purchase_insurance", "budget limit", _book("2024-01-01", "SFO", "LAX"), scene="multi_turn_base_150")
def budget(situation: Situation) -> str:
    flight = situation.call.name == "book_flight"
    return sentences(
        "The balance of the card is below the budget limit." if flight else "The cost is above the budget limit.",
        "Use a card with a higher balance" if flight else "Choose a lower cost",
        situation.if_visible("set_budget_limit", "or, if the user wants that, change the limit with set_budget_limit")
        + ("; otherwise tell the user so."),
    )


@rule(
    "compute_exchange_rate",
    "No available exchange rate",
    "compute_exchange_rate(base_currency='EUR', target_currency='GBP', value=1)",
)
def exchange(situation: Situation) -> str:
    valid = options(situation, "base_currency")
    given = [situation.argument("base_currency"), situation.argument("target_currency")]
    wrong = [value for value in given if value not in valid]
    if given[0] == given[1]:
        return "Both currencies are the same, so the value stays as it is; no conversion is needed."
    if wrong:
        return f"{short(wrong[0])} is not a known currency. Choose from {', '.join(valid)}."
    return "Rates exist only between USD and another currency. Convert to USD first, then from USD to the other."


rule(
    "verify_traveler_information",
    '"verification_status": false',
    "verify_traveler_information(first_name='A', last_name='B', date_of_birth='2000-01-01', passport_number='US1')",
    errors=SILENT,
    name="traveler",
)(
    says(
        "The traveler was not verified. It takes the first and last name of who is logged in, a birth date written as "
        "YYYY-MM-DD at least 18 years ago, and a passport number that begins with US. Check these with the user."
    )
)


@rule("get_nearest_airport_by_city", '"Unknown"', "get_nearest_airport_by_city(location='Lyon')", errors=SILENT)
def city(situation: Situation) -> str:
    known = options(situation, "location")
    given = situation.argument("location")
    return f"No airport is known for {short(given)}. Give a plain city name; known: {listing(known, given, 190)}."
