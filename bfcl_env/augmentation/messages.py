"""Rules for MessageAPI: who is logged in, which users there are, and to whom messages went."""

from bfcl_env.augmentation.rule import SILENT, listing, rules_of, sentences, short
from bfcl_env.augmentation.situation import Situation

RULES, rule = rules_of("MessageAPI")
_ASK = "Ask the user for it."


def _users(situation: Situation, near: object) -> str:
    return situation.if_visible("list_users", f"Users here: {listing(situation.instance.user_map, near)}.")


def _id_of(situation: Situation, name: str) -> str:
    return situation.if_visible("get_user_id", f"get_user_id(user={name}) gives an id.")


@rule("", "No user is currently logged in", "view_messages_sent()")
def message_login(situation: Situation) -> str:
    return sentences(
        "Nobody is logged in.",
        situation.if_visible(
            "message_login", "First call message_login(user_id=...) with the user's own id.", "Tell the user so."
        ),
        _id_of(situation, "..."),
    )


@rule("get_user_id", "not found in the workspace", "get_user_id(user='Bobby')")
def user_name(situation: Situation) -> str:
    name = situation.argument("user")
    is_id = name in situation.instance.user_map.values()
    return sentences(
        f"{short(name)} is an id already; use it as it is." if is_id else f"There is no user named {short(name)}.",
        _users(situation, name) or _ASK,
        situation.if_visible("add_contact", "" if is_id else "add_contact makes a new one."),
    )


@rule("message_login", '"login_status": false', "message_login(user_id='Bob')", errors=SILENT, name="login_id")
@rule("send_message", "not found", "message_login(user_id='USR001')", "send_message(receiver_id='Bob', message='hi')")
def user_id(situation: Situation) -> str:
    given = situation.argument("receiver_id" if situation.call.name == "send_message" else "user_id")
    is_name = isinstance(given, str) and given in situation.instance.user_map
    return sentences(
        f"{short(given)} is a name, and an id is needed." if is_name else f"No user has the id {short(given)}.",
        _id_of(situation, short(given) if is_name else "...") or _ASK,
        "" if is_name else _users(situation, given),
    )


@rule("delete_message", "not found", "message_login(user_id='USR001')", "delete_message(receiver_id='USR009')")
def no_message_sent(situation: Situation) -> str:
    given = situation.argument("receiver_id")
    receivers = dict.fromkeys(receiver for message in situation.instance.inbox for receiver in message)
    return sentences(
        f"There is no message to {short(given)}.",
        _id_of(situation, short(given)) if given in situation.instance.user_map else "",
        situation.if_visible(
            "view_messages_sent", f"There are messages to: {listing(receivers, given) or 'nobody'}.", _ASK
        ),
    )


@rule("add_contact", "User name .* already exists", "add_contact(user_name='Kevin')", "add_contact(user_name='Kevin')")
def contact_exists(situation: Situation) -> str:
    return sentences(
        "This contact exists already, nothing has to be done.",
        situation.if_visible(
            "get_user_id", f"get_user_id(user={short(situation.argument('user_name'))}) gives the id."
        ),
    )


@rule("add_contact", "User ID .* already exists", "add_contact(user_name='Kelly')", scene="multi_turn_base_95")
def contact_id_taken(situation: Situation) -> str:
    return "The next id was in use and has been skipped. Call it again with the same name."


@rule(
    "search_messages",
    "object has no attribute",
    "message_login(user_id='USR001')",
    "send_message(receiver_id='USR002', message=5)",
    "search_messages(keyword='a')",
)
def message_not_text(situation: Situation) -> str:
    return sentences(
        "A stored message is not text, so nothing can be searched.",
        situation.if_visible("view_messages_sent", "view_messages_sent shows all messages.", "Tell the user so."),
    )
