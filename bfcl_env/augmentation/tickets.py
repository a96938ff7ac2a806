"""Rules for TicketAPI: who is logged in, which tickets are the user's, what can be changed."""

from bfcl_env.augmentation.rule import SILENT, listing, rules_of, sentences, short
from bfcl_env.augmentation.situation import Situation

RULES, rule = rules_of("TicketAPI")


def _log_in(situation: Situation) -> str:
    return situation.if_visible(
        "ticket_login",
        "First call ticket_login(username=..., password=...); ask the user for what you do not know.",
        "No available function logs in: tell the user so.",
    )


@rule("", "not authenticated", "logout()", "get_user_tickets()")
def ticket_login(situation: Situation) -> str:
    return sentences("Nobody is logged in.", _log_in(situation))


@rule("", "Ticket with ID .* not found", "get_ticket(ticket_id=99)")
def no_ticket(situation: Situation) -> str:
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


@rule(
    "close_ticket resolve_ticket",
    "is already",
    "ticket_login(username='a', password='b')",
    "create_ticket(title='a')",
    "close_ticket(ticket_id=1)",
    "close_ticket(ticket_id=1)",
)
def done_already(situation: Situation) -> str:
    return sentences(
        "The ticket has this status already, nothing has to be done.",
        situation.if_visible("edit_ticket", "edit_ticket can give it another status."),
    )


@rule(
    "create_ticket",
    "Invalid priority",
    "ticket_login(username='a', password='b')",
    "create_ticket(title='a', priority=9)",
)
def priority(situation: Situation) -> str:
    return "'priority' must be a whole number from 1 (lowest) to 5 (highest)."


@rule(
    "edit_ticket",
    "Invalid fields",
    "ticket_login(username='a', password='b')",
    "create_ticket(title='a')",
    "edit_ticket(ticket_id=1, updates={'owner': 'a'})",
)
def fields(situation: Situation) -> str:
    return "'updates' may only contain 'title', 'description', 'status' and 'priority'. Leave out everything else."


@rule(
    "",
    "^Error during execution: '",
    "ticket_login(username='a', password='b')",
    "get_user_tickets()",
    scene="multi_turn_base_23",
)
def ticket_incomplete(situation: Situation) -> str:
    other = "" if situation.call.name == "get_ticket" else "get_ticket"
    return sentences(
        "A stored ticket lacks one of its fields, so this function cannot be used on it.",
        situation.if_visible(other, f"{other} shows a single ticket by its id.") if other else "",
        situation.if_visible("edit_ticket", "edit_ticket can set its 'status'."),
        "Otherwise tell the user so.",
    )


@rule("ticket_login", '"success": false', "ticket_login(username='a', password='')", errors=SILENT)
def login_refused(situation: Situation) -> str:
    return "Both 'username' and 'password' must be given and not be empty. Ask the user for them."


@rule("logout", '"success": false', "logout()", "logout()", errors=SILENT)
def logged_out_already(situation: Situation) -> str:
    return "Nobody was logged in, so there is nothing to do."
