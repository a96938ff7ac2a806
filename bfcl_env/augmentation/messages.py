"""Rules for MessageAPI: who is logged in, which users there are, and to whom messages went."""

from bfcl_env.augmentation.rule import SILENT, Rule, listing, sentences, short
from bfcl_env.augmentation.situation import Situation

_CLASS = "MessageAPI"
_ASK = "Ask the user for it."


def _users(situation: Situation, near: object) -> str:
    return situation.if_visible("list_users", f"Users here: {listing(situation.instance.user_map, near)}.")


def _id_of(situation: Situation, name: str) -> str:
    return situation.if_visible("get_user_id", f"get_user_id(user={name}) gives an id.")


def message_login(situation: Situation) -> str:
    """How to log in."""
    return sentences(
        "Nobody is logged in.",
        situation.if_visible(
            "message_login", "First call message_login(user_id=...) with the user's own id.", "Tell the user so."
        ),
        _id_of(situation, "..."),
    )


def user_name(situation: Situation) -> str:
    """The names that exist, or how to make one."""
    name = situation.argument("user")
    is_id = name in situation.instance.user_map.values()
    return sentences(
        f"{short(name)} is an id already; use it as it is." if is_id else f"There is no user named {short(name)}.",
        _users(situation, name) or _ASK,
        situation.if_visible("add_contact", "" if is_id else "add_contact makes a new one."),
    )


def user_id(situation: Situation) -> str:
    """Names have to be turned into ids first."""
    given = situation.argument("receiver_id" if situation.call.name == "send_message" else "user_id")
    is_name = isinstance(given, str) and given in situation.instance.user_map
    return sentences(
        f"{short(given)} is a name, and an id is needed." if is_name else f"No user has the id {short(given)}.",
        _id_of(situation, short(given) if is_name else "...") or _ASK,
        "" if is_name else _users(situation, given),
    )


def no_message_sent(situation: Situation) -> str:
    """To whom there are messages."""
    given = situation.argument("receiver_id")
    receivers = dict.fromkeys(receiver for message in situation.instance.inbox for receiver in message)
    return sentences(
        f"There is no message to {short(given)}.",
        _id_of(situation, short(given)) if given in situation.instance.user_map else "",
        situation.if_visible(
            "view_messages_sent", f"There are messages to: {listing(receivers, given) or 'nobody'}.", _ASK
        ),
    )


def contact_exists(situation: Situation) -> str:
    """Use the one that exists."""
    return sentences(
        "This contact exists already, nothing has to be done.",
        situation.if_visible(
            "get_user_id", f"get_user_id(user={short(situation.argument('user_name'))}) gives the id."
        ),
    )


def contact_id_taken(situation: Situation) -> str:
    """The counter has moved on by one."""
    return "The next id was in use and has been skipped. Call it again with the same name."


def message_not_text(situation: Situation) -> str:
    """A message was sent that is not text."""
    return sentences(
        "A stored message is not text, so nothing can be searched.",
        situation.if_visible("view_messages_sent", "view_messages_sent shows all messages.", "Tell the user so."),
    )


RULES = (
    Rule("message_login", _CLASS, "", "No user is currently logged in", message_login, ("view_messages_sent()",)),
    Rule("user_name", _CLASS, "get_user_id", "not found in the workspace", user_name, ("get_user_id(user='Bobby')",)),
    Rule(
        "user_id",
        _CLASS,
        "send_message",
        "not found",
        user_id,
        ("message_login(user_id='USR001')", "send_message(receiver_id='Bob', message='hi')"),
    ),
    Rule(
        "no_message_sent",
        _CLASS,
        "delete_message",
        "not found",
        no_message_sent,
        ("message_login(user_id='USR001')", "delete_message(receiver_id='USR009')"),
    ),
    Rule(
        "contact_exists",
        _CLASS,
        "add_contact",
        "User name .* already exists",
        contact_exists,
        ("add_contact(user_name='Kevin')", "add_contact(user_name='Kevin')"),
    ),
    Rule(
        "contact_id_taken",
        _CLASS,
        "add_contact",
        "User ID .* already exists",
        contact_id_taken,
        ("add_contact(user_name='Kelly')",),
        scene="multi_turn_base_95",
    ),
    Rule(
        "message_not_text",
        _CLASS,
        "search_messages",
        "object has no attribute",
        message_not_text,
        (
            "message_login(user_id='USR001')",
            "send_message(receiver_id='USR002', message=5)",
            "search_messages(keyword='a')",
        ),
    ),
    Rule(
        "login_id", _CLASS, "message_login", '"login_status": false', user_id, ("message_login(user_id='Bob')",), SILENT
    ),
)
