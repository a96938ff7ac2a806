"""One episode by DFSDT, ToolBench's depth-first search over decisions (Y. Qin et al., ToolLLM, 2023).

A node is one message of the model. One that fails (`failed`) is taken back: the model is asked again where it stood
before, or at an earlier place of the user's turn, and is told what was tried there. Two messages are tried at a place;
after a give-up the place before is taken back as well. An answer closes the user's turn. Where a turn has no place
left, the first message that failed stands after all, so that a model which mends its errors still can. The budget is
of nodes in the whole episode; where it ends, the branch that stands is cut (`max_steps`).

What fails is decided by what the model can see: nothing here reads gold or verdicts. Every branch has an environment
of its own, led to where it begins by the same messages. A branch whose results differ then is dropped, and counted.
"""

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from interaction import Conversation, StopReason
from interaction.conversation import GAVE_UP, Reply
from interaction.endpoint import Completion, ContextFull, Endpoint
from interaction.environment import Task
from interaction.protocol import Message, Protocol
from interaction.users import User
from interaction.words import cut
from recipe.evaluation.play import begin, beside, hear, leave
from recipe.evaluation.store import Settings

WIDTH = 2
"""Messages that are tried at one place, as ToolBench's DFS_woFilter_w2 does."""
LIMITS = (StopReason.max_steps, StopReason.max_tokens, StopReason.format_errors)
LONGEST_TRIED = 500
"""Characters of an action, and of what came of it, that the model is told again."""

TRIED = (
    "You have been here before. What you did then, and what came of it:\n{}\n"
    "It led to no answer. Do something else now."
)


def failed(reply: Reply) -> bool:
    """Whether a message is taken back, by what the model that wrote it can see.

    It was malformed, one of its calls came back as an error, or it gave up (`Reply.wrong`); or the episode ended with
    it at a limit of messages, malformed ones or tokens. A fault of the environment ends it, as without a search.
    """
    if reply.stop_reason is StopReason.environment_error:
        return False
    return reply.wrong is not None or reply.stop_reason in LIMITS


async def search_episode(
    endpoint: Endpoint, settings: Settings, task: Task, user: User | None = None
) -> dict[str, Any]:
    """The branch that the search ends with, and what all branches have cost. Returns and raises as `play_episode`."""
    search = _Search(endpoint, settings, task, user)
    try:
        await search.run()
        return {**search.tokens, "search": search.counts, "episode": search.conversation.record().to_dict()}
    finally:
        await leave(search.conversation)


@dataclass(eq=False, slots=True)
class _Node:
    """A place in the conversation: a message of the model and what came back. The first one is the opening."""

    reply: Reply
    said: Completion = Completion("", truncated=False)
    took: float = 0.0
    action: str = ""
    parent: "_Node | None" = None
    tried: list["_Node"] = field(default_factory=list)
    closed: bool = False
    """Whether nothing more can be tried here."""

    def path(self) -> list["_Node"]:
        """From the opening to here."""
        return [*(self.parent.path() if self.parent else []), self]

    def rank(self) -> tuple[bool, list[int]]:
        """The least one is the first to stand after all: one that ended nothing, and of these the one tried first."""
        return self.reply.done, [node.parent.tried.index(node) for node in self.path() if node.parent]


class _Search:
    def __init__(self, endpoint: Endpoint, settings: Settings, task: Task, user: User | None) -> None:
        self.conversation = settings.conversation(task)
        self._endpoint, self._settings, self._task, self._user = endpoint, settings, task, user
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0}
        self.counts = {"nodes": 0, "branches": 1, "dropped": 0}
        self._waiting: list[_Node] = []
        """Messages of this turn that failed, each in another way, and do not stand."""

    async def run(self) -> None:
        """Until the conversation has ended or the budget is used up."""
        turn, here = 0, _Node(await begin(self.conversation, self._user))
        self._start = here
        while not self.conversation.done and not self._spent:
            here = await self._step(here)
            if self.conversation.turn > turn:
                turn, self._start, self._waiting = self.conversation.turn, here, []
        await beside(self.conversation, self.conversation.stop, StopReason.max_steps)

    @property
    def _spent(self) -> bool:
        return self.counts["nodes"] >= (self._settings.max_nodes or 0)

    async def _step(self, here: _Node) -> _Node:
        """One more message; where the conversation stands after it, or after going back."""
        try:
            node = await self._ask(here)
        except ContextFull:
            if not self.counts["nodes"]:
                raise
            here.closed = True
            place = await self._back(here, here)
            if place is None:
                await beside(self.conversation, self.conversation.stop, StopReason.max_tokens)
            return place or here
        repeated = any(node.action == other.action for other in here.tried)
        here.tried.append(node)
        if not repeated:
            if not failed(node.reply):
                return node
            self._waiting.append(node)
        if self._spent:
            return node
        gave_up = node.reply.wrong == GAVE_UP and here is not self._start
        return await self._back(here.parent if gave_up else here, node) or node

    async def _ask(self, here: _Node) -> _Node:
        """The model's next message, and what comes back."""
        began = perf_counter()
        said = await self._endpoint.complete(_messages(here))
        self.counts["nodes"] += 1
        self.tokens["prompt_tokens"] += said.prompt_tokens
        self.tokens["completion_tokens"] += said.completion_tokens
        took = round(perf_counter() - began, 4)
        reply = await self._say(self.conversation, said, took)
        return _Node(reply, said, took, _action(self.conversation.protocol, said.text), here)

    async def _say(self, conversation: Conversation, said: Completion, took: float) -> Reply:
        reply = await beside(conversation, conversation.reply, said.text, said.truncated, None, took)
        return replace(await hear(conversation, reply, self._user), wrong=reply.wrong)

    async def _back(self, place: _Node | None, at: _Node) -> _Node | None:
        """A place to go on from, with the conversation led there: the deepest of this turn where more can be tried.

        Else a message that failed and now stands; None where there is none either.
        """
        while place is not None:
            if not place.closed and len(place.tried) < WIDTH and await self._replay(place):
                return place
            place = None if place is self._start else place.parent
        while self._waiting:
            place = min(self._waiting, key=_Node.rank)
            self._waiting.remove(place)
            if place is at or await self._replay(place):
                return place
        return None

    async def _replay(self, place: _Node) -> bool:
        """Lead a fresh attempt to `place`, which takes the place of the present one unless its results are others."""
        fresh = self._settings.conversation(self._task)
        try:
            opening, *later = place.path()
            same = await hear(fresh, await beside(fresh, fresh.begin), self._user) == opening.reply
            for node in later:
                same = same and await self._say(fresh, node.said, node.took) == node.reply
            self.counts["branches" if same else "dropped"] += 1
            if same:
                fresh, self.conversation = self.conversation, fresh
            else:
                place.closed = True
            return same
        finally:
            await leave(fresh)


def _messages(place: _Node) -> list[Message]:
    """What the model reads at a place: the conversation, and in its last message what was tried there."""
    opening, *later = place.path()
    found = list(opening.reply.messages)
    for node in later:
        found += [{"role": "assistant", "content": node.said.text}, *node.reply.messages]
    if place.tried:
        tried = "\n".join(f"- {cut(node.action, LONGEST_TRIED)} -> {_outcome(node.reply)}" for node in place.tried)
        found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n\n{TRIED.format(tried)}"}
    return found


def _action(protocol: Protocol, text: str) -> str:
    """What a message does, whatever thought stands before it."""
    parsed = protocol.parse(text)
    if parsed.calls:
        return "; ".join(map(str, parsed.calls))
    if parsed.answer is None:
        return text
    return "give up" if parsed.gave_up else f"answer {parsed.answer!r}"


def _outcome(reply: Reply) -> str:
    """What came of a message, as the model could read it."""
    if reply.messages and reply.wrong != GAVE_UP:
        return cut(reply.messages[0]["content"], LONGEST_TRIED)
    return reply.wrong or str(reply.stop_reason)
