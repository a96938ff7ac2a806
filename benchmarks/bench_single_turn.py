"""Times the checker of BFCL's single-turn tasks beside BFCL's own, and on messages that no one should be able to send.

    python benchmarks/bench_single_turn.py       # about half a minute

The first part judges gold of every task of a category, its accepted values written as a model would, and prints
microseconds of CPU a message: ours gives two verdicts, BFCL's one. The fastest of three rounds counts, and the two
sides take turns. The second part prints seconds of CPU for hostile messages; BFCL's checker gets only the small ones.

On a busy machine of 2 cores: 74 to 130 microseconds a message for one call and 105 to 203 for several; BFCL's 21 to 39
and 36 to 71. Ours never needs more than 0.5 s, for a JavaScript array of 50,000 characters; 10 MB are refused in 3 ms.
BFCL's takes 2.7 s for an array of 72 characters, four times as long for each 6 more.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.single_turn import CATEGORIES, Task, gold, official, tasks

from bfcl_env.single_turn.checker import MAX_CALLS, check_calls
from interaction.call import MAX_CHARS, Call

ROUNDS = 3
MEGABYTES = 10_000_000


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def one_task(category: str, type_: str, inner: str = "string", calls: int = 1) -> Task:
    properties = {"a": {"type": type_, "items": {"type": inner}}}
    document = {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["a"]}}
    return Task("hostile", category, [document], [{"f": {"a": ["km"]}}] * calls)


def ours(task: Task, calls: tuple[Call, ...]) -> None:
    check_calls(calls, task.functions, task.accepted, task.language, parallel=task.parallel)


def category(name: str) -> None:
    messages = [(task, gold(task)[0]) for task in tasks(name)]
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        for side, check in enumerate((ours, official)):
            spent = seconds(lambda check=check: [check(task, calls) for task, calls in messages])
            best[side] = min(best[side], 1e6 * spent / len(messages))
    print(f"{name:24} {best[0]:8.1f} {best[1]:8.1f}")


def hostile(name: str, task: Task, value: object, *, theirs: bool = False) -> None:
    calls = tuple(Call("f", {"a": value}) for _ in task.accepted)
    spent = min(seconds(lambda: ours(task, calls)) for _ in range(ROUNDS))
    print(f"{name:56} {spent:8.4f}" + (f" {seconds(lambda: official(task, calls)):8.4f}" if theirs else ""))


def main() -> None:
    print(f"{'microseconds a message':24} {'ours':>8} {'BFCL':>8}")
    for name in CATEGORIES:
        category(name)
    text, array = one_task("simple_python", "string"), one_task("simple_python", "array")
    java, javascript = one_task("simple_java", "HashMap"), one_task("simple_javascript", "array", "integer")
    parallel = one_task("parallel", "string", calls=MAX_CALLS)
    print(f"\n{'seconds a message':56} {'ours':>8} {'BFCL':>8}")
    hostile("text of 10 MB", text, "a " * (MEGABYTES // 2), theirs=True)
    hostile("list of 5,000,000 numbers", array, [0] * (MEGABYTES // 2), theirs=True)
    hostile("list in a list, 100,000 deep", array, nested(100_000))
    hostile("JavaScript array of 66 characters", javascript, "[[]" + ",[]" * 21, theirs=True)
    hostile("JavaScript array of 72 characters", javascript, "[[]" + ",[]" * 23, theirs=True)
    hostile("JavaScript array of 10 MB", javascript, "[[]" + ",[]" * (MEGABYTES // 3))
    hostile("JavaScript array of 49,900 characters", javascript, "[[" + ",[]" * (49_900 // 3) + "]]")
    hostile("Java map of 12,000 characters", java, "new HashMap<" * 1_000, theirs=True)
    hostile("Java map of 48,000 characters", java, "new HashMap<" * 4_000)
    hostile("Java map of 10 MB", java, "new HashMap<" * (MEGABYTES // 12))
    hostile(f"{MAX_CALLS} calls, {MAX_CHARS} characters together", parallel, "- " * (MAX_CHARS // 2 // MAX_CALLS - 8))


if __name__ == "__main__":
    main()
