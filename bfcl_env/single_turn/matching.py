"""Which calls stand for which accepted ones, where their order is free."""

from collections.abc import Sequence

Fits = Sequence[Sequence[bool]]
"""`fits[i][j]`: whether call j is what accepted call i asks for; as many calls as accepted ones."""


def unmatched_greedily(fits: Fits) -> int | None:
    """The first accepted call without a call, as BFCL looks for them: each takes the first that fits and is free."""
    taken: set[int] = set()
    for index, row in enumerate(fits):
        free = next((call for call, good in enumerate(row) if good and call not in taken), None)
        if free is None:
            return index
        taken.add(free)
    return None


def unmatched(fits: Fits) -> tuple[list[int], list[int]]:
    """Accepted calls, and calls, that stay alone in a largest matching (augmenting paths; cubic in their number)."""
    owner: dict[int, int] = {}

    def place(index: int, seen: set[int]) -> bool:
        for call, good in enumerate(fits[index]):
            if good and call not in seen:
                seen.add(call)
                if call not in owner or place(owner[call], seen):
                    owner[call] = index
                    return True
        return False

    alone = [index for index in range(len(fits)) if not place(index, set())]
    return alone, [call for call in range(len(fits)) if call not in owner]
