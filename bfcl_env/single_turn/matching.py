"""Which calls stand for which accepted ones, where their order is free."""

from collections.abc import Callable

Fits = Callable[[int, int], bool]
"""Whether an accepted call, by its index, is fulfilled by a call; asked only as far as needed, and more than once."""


def unmatched_greedily(size: int, fits: Fits) -> int | None:
    """The first accepted call without a call, as BFCL looks for them: each takes the first that fits and is free."""
    taken: set[int] = set()
    for index in range(size):
        free = next((call for call in range(size) if call not in taken and fits(index, call)), None)
        if free is None:
            return index
        taken.add(free)
    return None


def unmatched(size: int, fits: Fits) -> tuple[list[int], list[int]]:
    """Accepted calls, and calls, that stay alone in a largest matching (augmenting paths; cubic in their number)."""
    owner: dict[int, int] = {}

    def place(index: int, seen: set[int]) -> bool:
        for call in range(size):
            if call not in seen and fits(index, call):
                seen.add(call)
                if call not in owner or place(owner[call], seen):
                    owner[call] = index
                    return True
        return False

    alone = [index for index in range(size) if not place(index, set())]
    return alone, [call for call in range(size) if call not in owner]
