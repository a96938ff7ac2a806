"""Asks a judge for the votes that are missing, side by side, and keeps each as soon as it is cast.

A vote is kept under what it is an answer to: the judge, how it is sampled, what it was shown, and the number of the
vote. So a start that was killed goes on where it was, no vote is asked for twice, and a conversation that has changed
is judged anew. Where the server does not answer, or not with a vote, there is none: it is asked again, then the vote is
lost, and counted.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from interaction.endpoint.client import ContextFull, Endpoint, EndpointFault
from interaction.endpoint.workers import side_by_side
from interaction.protocol import Message
from recipe.appended import Appended
from recipe.files import lines
from recipe.judge.question import read_vote
from rewards.votes import SOLVED

LOST_IN_A_ROW = 10
"""So many lost votes without one cast between them: the server is gone, and the rest is not tried."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One vote that is wanted."""

    name: str
    """Of method, subset and query, for people."""
    key: str
    messages: Sequence[Message]


def key_of(model: str, sampling: Mapping[str, Any], messages: Sequence[Message], number: int) -> str:
    """Under which a vote is kept."""
    return hashlib.sha256(json.dumps([model, sampling, messages, number], sort_keys=True).encode()).hexdigest()


def cast_before(path: Path) -> dict[str, str]:
    """Key -> word, of the votes that are kept. A damaged line is none."""
    found = {}
    for _, text in lines(path):
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            line = json.loads(text)
            if line["vote"] in SOLVED and isinstance(line["key"], str):
                found[line["key"]] = line["vote"]
    return found


async def cast(endpoint: Endpoint, ballots: Iterable[Ballot], kept: Appended, concurrency: int) -> dict[str, str]:
    """Ask for these votes and keep them; returns name -> why, of those that are lost.

    Raises:
        EndpointRefusal: the server refuses every request.
        OSError: a vote cannot be kept.
    """
    wanted = list(ballots)
    waiting: Iterator[Ballot] = iter(wanted)
    lost: dict[str, str] = {}
    in_a_row = 0
    with tqdm(desc="votes", total=len(wanted), unit="vote") as bar:

        async def work() -> None:
            nonlocal in_a_row
            for ballot in waiting:
                fault = f"not tried: {in_a_row} votes in a row were lost"
                if in_a_row < LOST_IN_A_ROW:
                    try:
                        vote = read_vote(await endpoint.complete(ballot.messages))
                        kept.add({"key": ballot.key, "vote": vote, "on": ballot.name})
                        in_a_row = 0
                        bar.update()
                        continue
                    except ContextFull as full:
                        fault = f"its context does not hold the conversation; lower --max-chars: {full}"
                    except EndpointFault as error:
                        in_a_row += 1
                        fault = str(error)
                lost[ballot.name] = fault
                bar.set_postfix(lost=len(lost))

        await side_by_side(work, concurrency)
    return lost
