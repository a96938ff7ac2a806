"""Tools that wait: tickets behind an HTTP service, judged by a check that asks the service.

python docs/desk.py    is the service: it takes .3 s for a request, and fails one in twenty
"""

import asyncio
import os
import random
from itertools import count, product

import aiohttp
from aiohttp import web

from interaction.tool_environment import Call, ToolTask, ToolUnavailable

URL = os.environ.get("DESK_URL", "http://127.0.0.1:8123")


class Desk:
    UNAVAILABLE = (aiohttp.ClientConnectionError, TimeoutError)  # asked again, and never the model's fault
    ONCE = ("open_ticket", "close_ticket")  # the second time it is another ticket, or none

    async def setup(self):
        self.path = (await self._ask("POST", "/desks"))["path"]

    async def teardown(self):
        await self._ask("DELETE", self.path)

    async def open_ticket(self, title: str, urgent: bool = False) -> dict:
        """Open a ticket.

        Args:
            title: what it is about
            urgent: whether it cannot wait
        """
        return await self._ask("POST", f"{self.path}/tickets", title=title, urgent=urgent)

    async def close_ticket(self, number: int) -> dict:
        """Close a ticket.

        Args:
            number: the ticket's number
        """
        return await self._ask("DELETE", f"{self.path}/tickets/{number}")

    async def _ask(self, method, path, **body):
        async with aiohttp.ClientSession() as session, session.request(method, URL + path, json=body) as answer:
            if answer.status in (401, 403, 429) or answer.status >= 500:
                raise ToolUnavailable(f"{method} {path}: {answer.status}")
            said = await answer.json()
            if answer.status >= 400:
                raise ValueError(said["error"])
            return said


async def check(desk, turn, calls, words):
    """First there is one ticket, half done if it is not urgent; then it is closed."""
    tickets = (await desk._ask("GET", desk.path))["tickets"]
    if turn == 0:
        return 0 if len(tickets) != 1 else 1 if tickets[0]["urgent"] else 0.5
    return not tickets and any(call.name == "close_ticket" and not call.error for call in calls)


def load_tasks():
    places = ["kitchen"] * 4 + ["cellar"] * 4 + ["garage"] * 2 + ["attic"] * 2
    things = dict(zip(("printer", "heating"), (0, 1), strict=True))
    for (number, place), thing in product(enumerate(places), things):
        opened = Call("open_ticket", {"title": f"{thing} {number}, {place}", "urgent": True})
        turns = [
            (f"The {thing} {number} in the {place} is broken! Open an urgent ticket.", [opened]),
            ("It works again. Close the ticket.", [Call("close_ticket", {"number": 1})]),
        ]
        part = {"garage": "dev", "attic": "test"}.get(place, "train")
        yield ToolTask("desk", f"{thing}_{number}", Desk, turns, check=check, part=part)


def service():
    desks, ids = {}, count(1)

    @web.middleware
    async def slow(request, handler):
        await asyncio.sleep(0.3)
        return web.Response(status=503) if random.random() < 0.05 else await handler(request)

    async def new(_):
        path = f"/desks/{next(ids)}"
        desks[path] = {}
        return web.json_response({"path": path})

    async def work(request):
        path = "/desks/" + request.match_info["desk"]
        tickets, number = desks[path], int(request.match_info.get("number", 0))
        if request.method == "GET":
            return web.json_response({"tickets": [*tickets.values()]})
        if request.method == "POST":
            number = len(tickets) + 1
            tickets[number] = {"number": number, **await request.json()}
            return web.json_response(tickets[number])
        if number not in tickets and number:
            return web.json_response({"error": f"there is no ticket {number}"}, status=404)
        return web.json_response(tickets.pop(number) if number else desks.pop(path) and {})

    application = web.Application(middlewares=[slow])
    application.router.add_post("/desks", new)
    for path in ("/desks/{desk}", "/desks/{desk}/tickets", r"/desks/{desk}/tickets/{number:\d+}"):
        application.router.add_route("*", path, work)
    return application


if __name__ == "__main__":
    web.run_app(service(), host="127.0.0.1", port=8123)
