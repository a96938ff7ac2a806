"""Which conversations are trained on, and which only show the loss: no conversation, and no query, is on both sides.

A model that has learned nine of ten instances of a query knows the tenth, so a held-out share is drawn by whole
queries: conversations with the same messages, with the same messages before the model's first one, or with one id.
"""

import hashlib
from collections.abc import Hashable, Sequence

from recipe.conversations.files import QUERY, Conversation


def hold_out(conversations: Sequence[Conversation], share: float, seed: int) -> set[int]:
    """Places in the list of the conversations to validate on: whole queries, at most the share, but one at least.

    Drawn by the content and the seed: neither the order of the conversations nor one more elsewhere changes it much.

    Raises:
        ValueError: all are of one query.
    """
    queries = _queries(conversations)
    if len(queries) < 2:
        raise ValueError(f"all {len(conversations)} conversations are of one query, or begin alike")
    drawn = sorted(queries, key=lambda one: _drawn(conversations, one, seed))
    wanted = min(max(1, round(share * len(conversations))), len(conversations) - 1)
    held = set[int]()
    for query in drawn:
        if len(held) + len(query) <= wanted:
            held.update(query)
    return held or set(sorted(drawn, key=len)[0])


def on_both(train: Sequence[Conversation], val: Sequence[Conversation]) -> list[tuple[str, str]]:
    """Places of conversations to validate on, each with one to train on that is the same, or of the same query."""
    if not val:
        return []
    trained = {key: one.place for one in train for key in _named(one)}
    return [(one.place, trained[key]) for one in val for key in list(_named(one) & trained.keys())[:1]]


def _named(one: Conversation) -> set[Hashable]:
    return {one.same, *(query for query in one.queries if query[0] in QUERY)}


def _queries(conversations: Sequence[Conversation]) -> list[list[int]]:
    """The places in the list, parted so that no two parts have anything in common."""
    parent = list(range(len(conversations)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    first: dict[Hashable, int] = {}
    for place, one in enumerate(conversations):
        for key in (("same", one.same), ("opening", one.opening), *one.queries):
            parent[root(place)] = root(first.setdefault(key, place))
    parts: dict[int, list[int]] = {}
    for place in range(len(conversations)):
        parts.setdefault(root(place), []).append(place)
    return list(parts.values())


def _drawn(conversations: Sequence[Conversation], query: Sequence[int], seed: int) -> str:
    name = min(conversations[place].same for place in query)
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
