"""Play tasks of an environment with policies that need no model, and print what each reward pays them.

    python -m recipe.audit --environment NAME|FILE [--reward FILE [price=0.02 ...]] [--tasks N|all] [--seconds S]

Gold, parts of it, one safe call a turn, only answers, nothing, junk and hostile texts. The exit status is 1 if gold is
not the maximum, if gold that is cut or what knows nothing of it earns as much on a task, if the latter earns more than
half of gold's mean in a category whose gold makes calls, if a call of a function that does not exist is no error, or if
a text makes the environment fail or hang. What an environment lists with a reason (`AUDIT_KNOWN` of its package,
"reward, policy: task" -> reason) is printed and not counted. A turn that passes without a call, though gold makes some
in it, is noted. All is played in a process of its own: a play that does not end within S seconds is named and ends the
audit.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from subprocess import Popen

from interaction.environment import DEFAULT
from recipe.audit import child
from recipe.audit.legend import REWARDS, legend
from recipe.audit.policies import NAMES
from recipe.launch.processes import Interruptible
from recipe.reward import read_argument

SAMPLE = 40
SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = _parsed(arguments)
    ours, theirs = Pipe(duplex=False)
    with ours:
        with theirs:
            process = child.start("recipe.audit.played", theirs.fileno(), json.dumps(vars(given)))
        try:
            with Interruptible():
                return _watched(process, ours)
        except KeyboardInterrupt:
            return 130
        finally:
            child.end(process)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m recipe.audit",
        description=__doc__,
        epilog=f"The table's rows (rewards), then its columns (policies):\n\n{legend(REWARDS, NAMES, {})}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--environment", default=DEFAULT, metavar="NAME|FILE", help="default: %(default)s")
    parser.add_argument("--reward", metavar="FILE", help="a reward of your own, instead of those here")
    parser.add_argument("--name", default="compute_score", help="its function (default: %(default)s)")
    parser.add_argument(
        "arguments", nargs="*", type=read_argument, metavar="NAME=VALUE", help="arguments of the reward"
    )
    parser.add_argument("--tasks", default=str(SAMPLE), help="how many, drawn at random, or all (default: %(default)s)")
    parser.add_argument("--protocol", default="think_xml", help="wire format (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of one play (default: %(default)g)")
    given = parser.parse_intermixed_args(arguments)
    if given.arguments and given.reward is None:
        names = ", ".join(name for name, _ in given.arguments)
        parser.error(f"{names}: an argument is for a reward of your own; name its file with --reward FILE")
    if given.tasks != "all" and not (given.tasks.isdecimal() and int(given.tasks)):
        parser.error(f"--tasks {given.tasks}: give a number, 1 or more, or all")
    if not 0 < given.seconds < float("inf"):
        parser.error(f"--seconds {given.seconds:g}: give a number above 0")
    return given


def _watched(process: Popen[bytes], heard: Connection) -> int:
    """The exit status of the process that plays, which says what it does next; 1 if it hangs or ends without a word."""
    where, limit = "its start", None
    while heard.poll(limit):
        try:
            said = json.loads(heard.recv_bytes())
        except (EOFError, OSError):
            how = child.ending(process) or "closed its connection"
            return _failed("the environment ended the audit", f"{where}: the code {how}")
        if "status" in said:
            return int(said["status"])
        where, limit = said["at"], said["seconds"]
    return _failed("an episode hung", f"{where}: has not ended within {limit:g} s, the limit of --seconds")


def _failed(kind: str, line: str) -> int:
    print(f"FOUND: {kind} (1)\n  {line}; nothing was played after it\n\nthe audit has failed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
