"""An engine that writes messages side by side, stepping from event to event.

It shares its rate among the messages it writes. What each of them has got since the engine began is the same number,
its virtual time, so a message is complete when that has come to a value that is known when it begins; nothing needs to
be updated meanwhile. Between two points in time at which the trainer acts no engine depends on another, which is why
each has a clock of its own.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from heapq import heapify, heappop, heappush, heapreplace

from benchmarks.long_tail.load import Load

Over = list[tuple[int, float]]
"""Episodes that have got their last message, and when each is over, what follows that message included."""


class Engine:
    """One engine, and the episodes at it.

    Args:
        load: rates and lengths.
        before: of every episode the seconds until its first message is asked for.
        between: of every episode the seconds from the end of a message to the beginning of the next.
    """

    def __init__(self, load: Load, before: Sequence[float], between: Sequence[float]) -> None:
        self.load, self.before, self.between = load, before, between
        self.now = self.ready = 0.0
        """The clock; and until when the engine reads what it had read before."""
        self.given = self.written = 0.0
        """Tokens that a message would have, had it been written from the beginning; and all that were written."""
        self.writing: list[tuple[float, int]] = []
        """Of messages that are being written: at which `given` they are complete, and the episode."""
        self.asked: list[tuple[float, int]] = []
        """When messages will be asked for, and the episode. Both are heaps."""
        self.queue: deque[int] = deque()
        """Episodes whose message waits for a place."""
        self.left: dict[int, int] = {}
        """Messages still to be completed, of the episodes that stay here until their last."""
        self.lost: set[int] = set()
        """Episodes of which the engine has to read again what was said."""

    def snapshot(self) -> "Engine":
        """As it stands, for going back to."""
        other = copy(self)
        other.writing, other.asked, other.queue = self.writing.copy(), self.asked.copy(), self.queue.copy()
        other.left, other.lost = self.left.copy(), self.lost.copy()
        return other

    @property
    def requests(self) -> int:
        """Messages that it has been asked for."""
        return len(self.writing) + len(self.queue) + sum(when <= self.now for when, _ in self.asked)

    def hand_out(self, episode: int) -> None:
        """Begin an episode, now."""
        self.left[episode] = self.load.messages
        heappush(self.asked, (self.now + self.before[episode], episode))

    def resume(self, now: float) -> None:
        """Go on at a later time. Until then nothing was written, and what the engine had read is lost."""
        self.now = now
        interrupted = {episode for _, episode in self.writing}
        self.lost = {episode for episode, left in self.left.items() if left < self.load.messages} - interrupted
        self.ready = now + self.load.reading * len(interrupted)

    def advance(self, until: float) -> Over:
        """Play on to a time."""
        writing, asked = self.writing, self.asked
        alone, full = self.load.tokens_a_second_alone, self.load.tokens_a_second
        over: Over = []
        while True:
            asks = bool(asked) and asked[0][0] <= until
            upto = max(asked[0][0], self.now) if asks else until  # one that was asked for in a pause begins after it
            completes = False
            if number := len(writing):
                rate = alone if number * alone < full else full / number
                begin = self.now if self.now > self.ready else self.ready
                each = writing[0][0] - self.given
                complete = begin + each / rate
                if completes := complete <= upto:
                    upto = complete
                else:
                    each = max(upto - begin, 0.0) * rate
                self.given += each
                self.written += number * each
            self.now = upto
            if completes:
                self._complete(over)
            elif asks:
                self._ask()
            else:
                return over

    def _ask(self) -> None:
        episode = heappop(self.asked)[1]
        if len(self.writing) < self.load.concurrency:
            self._begin(episode)
        else:
            self.queue.append(episode)

    def _complete(self, over: Over) -> None:
        """All messages that end now; only then do others take their places."""
        self.given = self.writing[0][0]
        while self.writing and self.writing[0][0] <= self.given:
            episode = heappop(self.writing)[1]
            after = self.now + self.between[episode]
            self.left[episode] -= 1
            if self.left[episode]:
                heappush(self.asked, (after, episode))
            else:
                del self.left[episode]
                over.append((episode, after))
        while self.queue and len(self.writing) < self.load.concurrency:
            self._begin(self.queue.popleft())

    def _begin(self, episode: int) -> None:
        heappush(self.writing, (self.given + self.load.tokens, episode))
        if episode in self.lost:
            self.lost.remove(episode)
            self.ready = max(self.ready, self.now) + self.load.reading


def hand_out(engines: Sequence[Engine], episodes: Iterable[int]) -> None:
    """Each to the engine with the fewest requests, as verl's balancer does; there it stays."""
    heap = [(engine.requests, number) for number, engine in enumerate(engines)]
    heapify(heap)
    for episode in episodes:
        requests, number = heap[0]
        heapreplace(heap, (requests + 1, number))
        engines[number].hand_out(episode)
