"""Rules for MathAPI, MessageAPI, TwitterAPI and TicketAPI: domains of functions, units, logins, and what exists."""

from bfcl_env.augmentation.rule import (
    FAULTS,
    LIMITS,
    SILENT,
    Rule,
    Situation,
    listing,
    log_in,
    rules_of,
    says,
    sentences,
    short,
)
from bfcl_env.limits import MAX_DIGITS

RULES: list[Rule] = []

mathematics = rules_of("MathAPI", RULES)
SI_UNITS = ("km", "m", "cm", "mm", "um", "nm")
IMPERIAL_UNITS = (
    *(("cm", "in"), ("m", "ft"), ("m", "yd"), ("km", "miles"), ("kg", "lb")),
    ("celsius", "fahrenheit"),
)
"""Pairs that are converted into each other, in both directions."""

mathematics(
    "mean standard_deviation min_value max_value sum_values", "empty list", "mean(numbers=[])", name="empty_list"
)(says("'numbers' is empty. Call it again with at least one number in the list."))


@mathematics("divide percentage", "divide by zero|cannot be zero", "divide(a=1, b=0)")
def division_by_zero(situation: Situation) -> str:
    name = "whole" if situation.call.name == "percentage" else "b"
    return f"'{name}' is 0, and nothing can be divided by it. Check where this value comes from and give another."


mathematics("square_root", "negative number", "square_root(number=-4, precision=5)", name="negative_root")(
    says("'number' must be zero or more.", ("absolute_value", "absolute_value gives the size of a negative number."))
)


@mathematics(
    "square_root logarithm round_number",
    "must be between|valid range for prec",
    "square_root(number=4, precision=2000)",
    errors=FAULTS | LIMITS,
)
def precision_range(situation: Situation) -> str:
    if situation.call.name == "round_number":
        return f"'decimal_places' must be a whole number from -{MAX_DIGITS} to {MAX_DIGITS}."
    return f"'precision' is a number of digits and must be a whole number from 1 to {MAX_DIGITS}."


mathematics("logarithm", "", "logarithm(value=8, base=1, precision=5)", name="logarithm_domain")(
    says("'value' must be above 0, 'base' must be above 0 and not 1, and 'precision' is a number of digits from 1 on.")
)
mathematics(
    "si_unit_conversion",
    "not supported",
    "si_unit_conversion(value=1, unit_in='miles', unit_out='km')",
    name="si_units",
)(
    says(
        f"'unit_in' and 'unit_out' must be among {listing(SI_UNITS)}.",
        ("imperial_si_conversion", "imperial_si_conversion knows feet, miles, pounds and degrees."),
    )
)


@mathematics("imperial_si_conversion", "not supported", "imperial_si_conversion(value=1, unit_in='km', unit_out='ft')")
def imperial_units(situation: Situation) -> str:
    given = situation.argument("unit_in")
    to = [pair[given == pair[0]] for pair in IMPERIAL_UNITS if given in pair]
    if to:
        return f"{short(given)} can be converted only to {listing(to)}. Choose one of these as 'unit_out'."
    pairs = ", ".join(f"{one} and {other}" for one, other in IMPERIAL_UNITS)
    return f"Units are converted, in both directions, between {pairs}. Write them like this."


mathematics("power", "negative power", "power(base=0, exponent=-1)", name="zero_to_negative")(
    says("0 has no negative powers. Give another 'base', or an 'exponent' of zero or more.")
)
mathematics(
    "",
    "too large|out of range|more than .* bits|Exceeds the limit",
    "power(base=9, exponent=99999999)",
    errors=FAULTS | LIMITS,
    name="too_large",
)(says("The result is too large a number. Check the arguments and give smaller ones."))
mathematics(
    "",
    "must be a number|must be numbers|NaN|[Ii]nfinity|nvalid",
    "logarithm(value='1e5', base=2, precision=5)",
    errors=FAULTS | LIMITS,
    name="not_a_number",
)(says("Give plain finite numbers as arguments, without text around them."))

messages = rules_of("MessageAPI", RULES)
_ASK = "Ask the user for it."
_LOGGED_IN = "message_login(user_id='USR001')"

messages("", "No user is currently logged in", "view_messages_sent()", name="message_login")(
    says(
        "Nobody is logged in.",
        ("message_login", "First call message_login(user_id=...) with the user's own id.", "Tell the user so."),
        ("get_user_id", "get_user_id(user=...) gives an id."),
    )
)


def _users(situation: Situation, near: object) -> str:
    return situation.if_visible("list_users", f"Users here: {listing(situation.instance.user_map, near)}.")


def _id_of(situation: Situation, name: str) -> str:
    return situation.if_visible("get_user_id", f"get_user_id(user={name}) gives an id.")


@messages("get_user_id", "not found in the workspace", "get_user_id(user='Bobby')")
def user_name(situation: Situation) -> str:
    name = situation.argument("user")
    is_id = name in situation.instance.user_map.values()
    return sentences(
        f"{short(name)} is an id already; use it as it is." if is_id else f"There is no user named {short(name)}.",
        _users(situation, name) or _ASK,
        situation.if_visible("add_contact", "" if is_id else "add_contact makes a new one."),
    )


@messages("message_login", '"login_status": false', "message_login(user_id='Bob')", errors=SILENT, name="login_id")
@messages("send_message", "not found", _LOGGED_IN, "send_message(receiver_id='Bob', message='hi')")
def user_id(situation: Situation) -> str:
    given = situation.argument("receiver_id" if situation.call.name == "send_message" else "user_id")
    is_name = isinstance(given, str) and given in situation.instance.user_map
    return sentences(
        f"{short(given)} is a name, and an id is needed." if is_name else f"No user has the id {short(given)}.",
        _id_of(situation, short(given) if is_name else "...") or _ASK,
        "" if is_name else _users(situation, given),
    )


@messages("delete_message", "not found", _LOGGED_IN, "delete_message(receiver_id='USR009')")
def no_message_sent(situation: Situation) -> str:
    given = situation.argument("receiver_id")
    receivers = dict.fromkeys(receiver for message in situation.instance.inbox for receiver in message)
    there = f"There are messages to: {listing(receivers, given) or 'nobody'}."
    return sentences(
        f"There is no message to {short(given)}.",
        _id_of(situation, short(given)) if given in situation.instance.user_map else "",
        situation.if_visible("view_messages_sent", there, _ASK),
    )


@messages("add_contact", "User name .* already exists", *["add_contact(user_name='Kevin')"] * 2)
def contact_exists(situation: Situation) -> str:
    gives = f"get_user_id(user={situation.shown('user_name')}) gives the id."
    return sentences("This contact exists already, nothing has to be done.", situation.if_visible("get_user_id", gives))


messages(
    "add_contact",
    "User ID .* already exists",
    "add_contact(user_name='Kelly')",
    scene="multi_turn_base_95",
    name="contact_id_taken",
)(says("The next id was in use and has been skipped. Call it again with the same name."))
messages(
    "search_messages",
    "object has no attribute",
    _LOGGED_IN,
    "send_message(receiver_id='USR002', message=5)",
    "search_messages(keyword='a')",
    name="message_not_text",
)(
    says(
        "A stored message is not text, so nothing can be searched.",
        ("view_messages_sent", "view_messages_sent shows all messages.", "Tell the user so."),
    )
)

posting = rules_of("TwitterAPI", RULES)
posting("", "not authenticated", "post_tweet(content='hi')", name="twitter_login")(log_in("authenticate_twitter"))


@posting("", "Tweet with ID .* not found", "get_tweet(tweet_id=99)")
def no_tweet(situation: Situation) -> str:
    ids = listing(situation.instance.tweets, situation.argument("tweet_id"))
    shows = "get_user_tweets shows the tweets of a user with their ids."
    return sentences(
        f"There is no tweet {situation.shown('tweet_id')}. Use the id of one that exists.",
        situation.if_visible("search_tweets", f"Ids: {ids}." if ids else "So far there is none."),
        situation.if_visible("get_user_tweets", shows if ids else ""),
        situation.if_visible("post_tweet", "" if ids else "post_tweet makes the first one."),
    )


posting(
    "mention",
    "object has no attribute|'mentions'",
    "post_tweet(content='a', mentions='@b')",
    "mention(tweet_id=0, mentioned_usernames=['@c'])",
    scene="multi_turn_base_5",
    name="no_list_of_mentions",
)(
    says(
        "The usernames of this tweet cannot be extended.",
        ("post_tweet", "Name them in a new tweet with post_tweet(content=..., mentions=[...])."),
    )
)
posting(
    "search_tweets get_user_tweets get_user_stats",
    "object has no attribute|Error during execution: '",
    "post_tweet(content=5)",
    "search_tweets(keyword='a')",
    scene="multi_turn_base_5",
    name="tweet_incomplete",
)(
    says(
        "A stored tweet lacks some of its parts or has a wrong one, so tweets cannot be searched.",
        ("get_tweet", "get_tweet shows a single tweet by its id.", "Tell the user so."),
    )
)
posting(
    "authenticate_twitter",
    '"authentication_status": false',
    "authenticate_twitter(username='a', password='b')",
    errors=SILENT,
    name="wrong_password",
)(says("The username or the password is wrong, and nobody is logged in. Ask the user for both."))


@posting(
    "follow_user unfollow_user retweet",
    'follow_status": false|Already retweeted',
    "unfollow_user(username_to_unfollow='nobody')",
    errors=SILENT,
    scene="multi_turn_base_5",
)
def nothing_to_change(situation: Situation) -> str:
    name = situation.call.name
    words = {
        "follow_user": "This user is followed already.",
        "unfollow_user": "This user is not followed, so there is nothing to undo.",
        "retweet": "This was done before.",
    }
    follows = situation.if_visible("list_all_following", "list_all_following shows who is followed.")
    return sentences(
        f"{words[name]} Nothing has changed; do not repeat the call.", follows if name == "unfollow_user" else ""
    )


tickets = rules_of("TicketAPI", RULES)
_LOG_IN = "ticket_login(username='a', password='b')"
_CREATE = "create_ticket(title='a')"
tickets("", "not authenticated", "logout()", "get_user_tickets()", name="ticket_login")(log_in("ticket_login"))


@tickets("", "Ticket with ID .* not found", "get_ticket(ticket_id=99)")
def no_ticket(situation: Situation) -> str:
    user = situation.instance.current_user
    queue = situation.instance.ticket_queue
    mine = [ticket.get("id") for ticket in queue if user and ticket.get("created_by") == user]
    if not all("created_by" in ticket for ticket in queue):
        step = ""  # get_user_tickets fails on such a queue.
    elif not user:
        step = "get_user_tickets lists the user's own ones after a login."
    else:
        step = f"The tickets of {short(user)}: {listing(mine)}." if mine else f"{short(user)} has no tickets."
    return sentences(
        f"There is no ticket {situation.shown('ticket_id')}.",
        situation.if_visible("get_user_tickets", step),
        situation.if_visible("create_ticket", "" if mine else "create_ticket makes one and returns its id."),
        "Otherwise ask the user for the id.",
    )


tickets(
    "close_ticket resolve_ticket",
    "is already",
    *(_LOG_IN, _CREATE, "close_ticket(ticket_id=1)", "close_ticket(ticket_id=1)"),
    name="done_already",
)(
    says(
        "The ticket has this status already, nothing has to be done.",
        ("edit_ticket", "edit_ticket can give it another status."),
    )
)
tickets("create_ticket", "Invalid priority", _LOG_IN, "create_ticket(title='a', priority=9)", name="priority")(
    says("'priority' must be a whole number from 1 (lowest) to 5 (highest).")
)
tickets(
    "edit_ticket",
    "Invalid fields",
    *(_LOG_IN, _CREATE, "edit_ticket(ticket_id=1, updates={'owner': 'a'})"),
    name="fields",
)(says("'updates' may only contain 'title', 'description', 'status' and 'priority'. Leave out everything else."))


@tickets("", "^Error during execution: '", _LOG_IN, "get_user_tickets()", scene="multi_turn_base_23")
def ticket_incomplete(situation: Situation) -> str:
    other = "get_ticket shows a single ticket by its id."
    return sentences(
        "A stored ticket lacks one of its fields, so this function cannot be used on it.",
        situation.if_visible("get_ticket", "" if situation.call.name == "get_ticket" else other),
        situation.if_visible("edit_ticket", "edit_ticket can set its 'status'."),
        "Otherwise tell the user so.",
    )


tickets(
    "ticket_login",
    '"success": false',
    "ticket_login(username='a', password='')",
    errors=SILENT,
    name="login_refused",
)(says("Both 'username' and 'password' must be given and not be empty. Ask the user for them."))
tickets("logout", '"success": false', "logout()", "logout()", errors=SILENT, name="logged_out_already")(
    says("Nobody was logged in, so there is nothing to do.")
)
