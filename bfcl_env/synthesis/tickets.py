"""TicketAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain, Fixed, op

NEW = ("the new ticket", "the ticket I just created", "that ticket")


class Tickets(Domain):
    """Three tickets; most often somebody is logged in."""

    owner = "TicketAPI"

    def start(self) -> dict[str, Any]:
        me = self.names.account()
        numbers = sorted({self.names.number(10, 900) for _ in range(3)})
        queue = [
            {
                "id": number,
                "title": self.names.title(),
                "description": self.names.sentence(),
                "status": "Open",
                "priority": self.random.randint(1, 5),
                "created_by": self.random.choice((me, me, self.names.account())),
            }
            for number in numbers
        ]
        user = me if self.random.random() < 0.75 else None
        return {"ticket_queue": queue, "ticket_counter": self.names.number(901, 1020), "current_user": user}

    def logged_in(self) -> Any:
        return self.instance.current_user

    def logged_out(self) -> Any:
        return not self.instance.current_user

    def _referred(self, tickets: list[dict[str, Any]]) -> Any:
        return self.referred("ticket", [ticket["id"] for ticket in tickets], NEW, "ticket {}")

    def ticket(self) -> Any:
        return self._referred(self.instance.ticket_queue)

    def open_ticket(self) -> Any:
        return self._referred([item for item in self.instance.ticket_queue if item["status"] == "Open"])

    def title(self) -> Any:
        return self.names.title()

    def description(self) -> Any:
        return self.names.sentence()

    def priority(self) -> Any:
        return self.random.randint(1, 5)

    def user_name(self) -> Any:
        return self.names.account()

    def password(self) -> Any:
        return self.names.title().replace(" ", "")

    operations = (
        op("log in to the ticket system as {user_name} with password {password} | sign in to tickets as {user_name}, the password is {password} | open a ticket session for {user_name}, password {password}", ticket_login={"username": "user_name", "password": "password"}, needs=["logged_out"]),
        op("open a ticket {title} with priority {priority} | create a priority {priority} ticket titled {title} | file a ticket called {title}, priority {priority}", create_ticket={"title": "title", "priority": "priority"}, needs=["logged_in"], notes={"ticket": "id"}),
        op("open a ticket {title} with priority {priority} described as {description} | create a priority {priority} ticket titled {title}, description {description} | file a ticket {title} saying {description}, priority {priority}", create_ticket={"title": "title", "description": "description", "priority": "priority"}, needs=["logged_in"], notes={"ticket": "id"}, weight=1.5),
        op("show me {ticket} | look up {ticket} | give me the details of {ticket}", get_ticket={"ticket_id": "ticket"}),
        op("close {open_ticket} | mark {open_ticket} as closed | shut {open_ticket}", close_ticket={"ticket_id": "open_ticket"}),
        op("resolve {open_ticket} with {description} | mark {open_ticket} as resolved, resolution {description} | settle {open_ticket}, noting {description}", resolve_ticket={"ticket_id": "open_ticket", "resolution": "description"}),
        op("change the priority of {ticket} to {priority} | set {ticket} to priority {priority} | make {priority} the priority of {ticket}", edit_ticket={"ticket_id": "ticket", "updates": {"priority": "priority"}}),
        op("change the title of {ticket} to {title} | retitle {ticket} as {title} | call {ticket} {title} from now on", edit_ticket={"ticket_id": "ticket", "updates": {"title": "title"}}),
        op("change the description of {ticket} to {description} | describe {ticket} as {description} instead | put {description} into the description of {ticket}", edit_ticket={"ticket_id": "ticket", "updates": {"description": "description"}}),
        op("list my open tickets, the ones with status Open | show those of my tickets whose status is Open | give me my tickets that are Open", get_user_tickets={"status": Fixed("Open")}, needs=["logged_in"], weight=0.4),
        op("list all my tickets | show every ticket of mine | give me an overview of my own tickets", get_user_tickets={}, needs=["logged_in"], weight=0.4),
        op("check whether I am logged in to tickets | tell me the ticket login status | see if my ticket session is open", ticket_get_login_status={}, weight=0.3),
        op("log me out of the ticket system | sign out of tickets | end my ticket session", logout={}, needs=["logged_in"], weight=0.4),
    )  # fmt: skip
