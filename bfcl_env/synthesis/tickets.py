"""TicketAPI."""

from typing import Any

from bfcl_env.synthesis.operation import Domain

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
