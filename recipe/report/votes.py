"""Files of votes in StepTool's form, one a subset: what a judge, or a person, said of each query, several times.

    {"11650": {"query": "...", "answer_steps": "...", "is_solved": {"0": "AnswerStatus.Solved", "1": "Unsure", ...}}}

`rewards.votes.SOLVED` has the three words. All queries of a file have votes of the same numbers: a missing vote is none
against the query, so a file that lacks one is not read. A query may name its `cluster`, a text; what else it has is for
people. A file is read whole or not at all, and everything that is wrong with it is said at once.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recipe.files import Damaged, read_json, write_atomic
from recipe.report.pass_rate import Query
from recipe.typed import shown
from rewards.votes import SOLVED, worth

MOST_VOTES = 1000
"""On one query."""

EXPECTED = f"expected {', '.join(SOLVED)}, with AnswerStatus. before it or not"


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its names stand there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def read_votes(path: Path) -> tuple[dict[str, Query], list[str]]:
    """The queries of a file by id, none where something is wrong with it; and everything that is wrong.

    A mistake is one line: file, query, field, what stands there and what was expected.
    """
    try:
        content = read_json(path, made=_Object)
    except FileNotFoundError:
        return {}, [f"{path} does not exist"]
    except Damaged as error:
        return {}, [str(error)]
    if not isinstance(content, _Object) or not content:
        return {}, [f"{path} holds {shown(content)}; expected an object with an entry for each query"]
    wrong = [f"{path}, query {shown(name, quote=False)}: stands there twice" for name in content.repeated]
    votes: dict[str, dict[int, float]] = {}
    for name, entry in content.items():
        given, more = _entry(entry, f"{path}, query {shown(name, quote=False)}")
        wrong += more
        if not more:
            votes[name] = given
    wrong += _uneven(path, votes)
    if wrong:
        return {}, wrong
    return {
        name: Query(tuple(given[number] for number in sorted(given)), content[name].get("cluster", f"{path}\n{name}"))
        for name, given in votes.items()
    }, []


def _entry(entry: Any, where: str) -> tuple[dict[int, float], list[str]]:
    """The votes of one query, and what is wrong with it."""
    if not isinstance(entry, _Object):
        return {}, [f"{where}: is {shown(entry)}; expected an object with is_solved"]
    wrong = [f"{where}, {shown(field, quote=False)}: stands there twice" for field in entry.repeated]
    if not isinstance(entry.get("cluster", ""), str):
        wrong.append(f"{where}, cluster: is {shown(entry['cluster'])}; expected a text")
    votes, more = _votes(entry.get("is_solved"), f"{where}, is_solved")
    return votes, wrong + more


def _votes(given: Any, where: str) -> tuple[dict[int, float], list[str]]:
    """Number of the vote -> what it is worth; and what is wrong."""
    if not isinstance(given, _Object) or not given:
        return {}, [f'{where}: is {shown(given)}; expected an object of votes, such as {{"0": "Solved"}}']
    if len(given) > MOST_VOTES:
        return {}, [f"{where}: has {len(given)} votes; expected at most {MOST_VOTES}"]
    wrong = [f"{where}.{shown(number, quote=False)}: stands there twice" for number in given.repeated]
    found = {}
    for number, vote in given.items():
        value, field = worth(vote), f"{where}.{shown(number, quote=False)}"
        if not (number.isascii() and number.isdecimal() and str(int(number[:9])) == number):
            wrong.append(f"{field}: is no number of a vote; expected 0, 1, 2, ...")
        elif value is None:
            wrong.append(f"{field}: is {shown(vote)}; {EXPECTED}")
        else:
            found[int(number)] = value
    return found, wrong


def _uneven(path: Path, votes: Mapping[str, Mapping[int, float]]) -> list[str]:
    """The queries that lack votes which another one has."""
    numbers = sorted({number for given in votes.values() for number in given})
    lacking = {name: [str(number) for number in numbers if number not in given] for name, given in votes.items()}
    return [
        f"{path}, query {shown(name, quote=False)}, is_solved: lacks vote {', '.join(missing[:5])}, which others have"
        for name, missing in lacking.items()
        if missing
    ]


def write_votes(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace a file of votes.

    Raises:
        OSError: it cannot be written; what stood there before still does.
    """
    write_atomic(path, json.dumps(entries, indent=1) + "\n")
