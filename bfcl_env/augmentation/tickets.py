"""Rules for TicketAPI: who is logged in, which tickets are the user's, what can be changed."""

from bfcl_env.augmentation.rule import SILENT, Rule, listing, sentences, short
from bfcl_env.augmentation.situation import Situation

_CLASS = "TicketAPI"


def _log_in(situation: Situation) -> str:
    return situation.if_visible(
        "ticket_login",
        "First call ticket_login(username=..., password=...); ask the user for what you do not know.",
        "No available function logs in: tell the user so.",
    )


def ticket_login(situation: Situation) -> str:
    """How to log in."""
    return sentences("Nobody is logged in.", _log_in(situation))


def no_ticket(situation: Situation) -> str:
    """The tickets of who is logged in; others are nobody's business."""
    user = situation.instance.current_user
    queue = situation.instance.ticket_queue
    mine = [ticket.get("id") for ticket in queue if user and ticket.get("created_by") == user]
    if not all("created_by" in ticket for ticket in queue):
        step = ""  # get_user_tickets fails on such a queue.
    elif not user:
        step = situation.if_visible("get_user_tickets", "get_user_tickets lists the user's own ones after a login.")
    elif mine:
        step = situation.if_visible("get_user_tickets", f"The tickets of {short(user)}: {listing(mine)}.")
    else:
        step = situation.if_visible("get_user_tickets", f"{short(user)} has no tickets.")
    return sentences(
        f"There is no ticket {short(situation.argument('ticket_id'))}.",
        step,
        situation.if_visible("create_ticket", "" if mine else "create_ticket makes one and returns its id."),
        "Otherwise ask the user for the id.",
    )


def done_already(situation: Situation) -> str:
    """It is so already."""
    return sentences(
        "The ticket has this status already, nothing has to be done.",
        situation.if_visible("edit_ticket", "edit_ticket can give it another status."),
    )


def priority(situation: Situation) -> str:
    """The range."""
    return "'priority' must be a whole number from 1 (lowest) to 5 (highest)."


def fields(situation: Situation) -> str:
    """The fields that can be changed."""
    return "'updates' may only contain 'title', 'description', 'status' and 'priority'. Leave out everything else."


def ticket_incomplete(situation: Situation) -> str:
    """Other ways to look."""
    other = "" if situation.call.name == "get_ticket" else "get_ticket"
    return sentences(
        "A stored ticket lacks one of its fields, so this function cannot be used on it.",
        situation.if_visible(other, f"{other} shows a single ticket by its id.") if other else "",
        situation.if_visible("edit_ticket", "edit_ticket can set its 'status'."),
        "Otherwise tell the user so.",
    )


def login_refused(situation: Situation) -> str:
    """Both must be given."""
    return "Both 'username' and 'password' must be given and not be empty. Ask the user for them."


def logged_out_already(situation: Situation) -> str:
    """It is so already."""
    return "Nobody was logged in, so there is nothing to do."


RULES = (
    Rule("ticket_login", _CLASS, "", "not authenticated", ticket_login, ("logout()", "get_user_tickets()")),
    Rule("no_ticket", _CLASS, "", "Ticket with ID .* not found", no_ticket, ("get_ticket(ticket_id=99)",)),
    Rule(
        "done_already",
        _CLASS,
        "close_ticket resolve_ticket",
        "is already",
        done_already,
        (
            "ticket_login(username='a', password='b')",
            "create_ticket(title='a')",
            "close_ticket(ticket_id=1)",
            "close_ticket(ticket_id=1)",
        ),
    ),
    Rule(
        "priority",
        _CLASS,
        "create_ticket",
        "Invalid priority",
        priority,
        ("ticket_login(username='a', password='b')", "create_ticket(title='a', priority=9)"),
    ),
    Rule(
        "fields",
        _CLASS,
        "edit_ticket",
        "Invalid fields",
        fields,
        (
            "ticket_login(username='a', password='b')",
            "create_ticket(title='a')",
            "edit_ticket(ticket_id=1, updates={'owner': 'a'})",
        ),
    ),
    Rule(
        "ticket_incomplete",
        _CLASS,
        "",
        "^Error during execution: '",
        ticket_incomplete,
        ("ticket_login(username='a', password='b')", "get_user_tickets()"),
        scene="multi_turn_base_23",
    ),
    Rule(
        "login_refused",
        _CLASS,
        "ticket_login",
        '"success": false',
        login_refused,
        ("ticket_login(username='a', password='')",),
        SILENT,
    ),
    Rule(
        "logged_out_already", _CLASS, "logout", '"success": false', logged_out_already, ("logout()", "logout()"), SILENT
    ),
)
