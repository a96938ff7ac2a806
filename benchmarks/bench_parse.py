"""Times the parsers of all protocols on hostile messages of the longest length that they look at.

    python benchmarks/bench_parse.py             # about ten seconds

A message is 200,000 characters: one piece over and over, alone, as the content of a call, or after a whole call.
Prints, per protocol, the slowest three of them, the best of three tries each, and a gold message for comparison.
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bfcl_env import Call, load_scenarios
from interaction import get_protocol
from interaction.protocol import PROTOCOLS, Protocol

SIZE = 200_000
PIECES = """<think> </think> <tool_response> 1, 1.5, "a", "a":1, {"a": - [f( f( f(a= f(), a=1, {"name":" ","parameters":
[ ] [] [], {" { } (( \\" '' ; é {"name":"f","arguments":{}},""".split()
PIECES += [" ", "\n"]


def hostile(protocol: Protocol) -> Iterator[str]:
    """Messages of SIZE characters made from the protocol's own call and from PIECES."""
    call = protocol.render_calls("", [Call("f", {"x": "@"})])
    match = re.search(r"""["']@["']""", call)
    assert match is not None
    before, after = call[: match.start()], call[match.end() :]
    middle = SIZE - len(before) - len(after)
    for piece in {*PIECES, *re.findall(r"</?\w+>|\w+|\W", call), call}:
        repeated = piece * (SIZE // len(piece) + 1)
        yield repeated[:SIZE]
        yield before + repeated[:middle] + after
        yield (call + repeated)[:SIZE]


def milliseconds(protocol: Protocol, text: str) -> float:
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        protocol.parse(text)
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def main() -> None:
    gold = max((turn.gold for item in load_scenarios("multi_turn_base") for turn in item.turns), key=len)
    for name in sorted(PROTOCOLS):
        protocol = get_protocol(name)
        times = sorted(((milliseconds(protocol, text), text) for text in hostile(protocol)), reverse=True)
        message = protocol.render_calls("why", gold)
        print(f"{name}: gold message of {len(message)} characters {milliseconds(protocol, message):.3f} ms")
        for spent, text in times[:3]:
            print(f"    {spent:6.1f} ms, {protocol.parse(text).error or 'well-formed'}: {text[:60]!r}...")


if __name__ == "__main__":
    main()
