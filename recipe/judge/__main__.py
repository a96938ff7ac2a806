"""Let a judge vote on the conversations of an evaluation, or of the last validation of each stage of a run.

    python -m recipe.judge outputs/evaluation/mine --endpoint http://127.0.0.1:8001/v1 --served-name judge --votes 3
    python -m recipe.report --compare outputs/judge/judge outputs/evaluation/mine

The votes stand in <out>/<method>/<category>.json, as StepTool's do, once all of them are cast; each is kept in
<out>/votes.jsonl as soon as it is. Started again the same command asks for what is missing, and for nothing else.

Exit status: 0 all votes are cast; 1 it could not be done; 3 votes were lost to the server: none is made up for them,
and no file of votes is written; 130 interrupted.
"""

import argparse
import asyncio
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interaction.endpoint.client import Endpoint, EndpointRefusal, Named
from interaction.endpoint.reply import Completion, one_line
from interaction.protocol import Message
from recipe.appended import Appended
from recipe.evaluation.arguments import count
from recipe.evaluation.results import all_lost
from recipe.files import Damaged, told
from recipe.judge.casting import Ballot, cast, cast_before, key_of
from recipe.judge.question import messages, read_vote
from recipe.report import pass_rate_page, sources, votes

LOST_STATUS = 3

NAMED = Named("--endpoint", "--served-name", "--api-key-env", "Give another --{name}.")


class JudgeError(RuntimeError):
    """It cannot be done. The message says why, and what to change."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One conversation."""

    file: Path
    """Of votes, below the folder of --out: method and subset."""
    query: str
    entry: Mapping[str, Any]
    """What the file says of it beside its votes."""
    messages: Sequence[Message]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m recipe.judge`; returns the exit status."""
    given = _parsed(arguments)
    try:
        return asyncio.run(_judge(given))
    except (EndpointRefusal, JudgeError, Damaged) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except BlockingIOError:
        print("\nanother judge is writing there; wait for it, or choose another --out", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a folder that cannot be written
        print(f"\n{told(error)}; votes that were cast are kept, the same command goes on from there", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; votes that were cast are kept, the same command goes on from there", file=sys.stderr)
        return 130


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m recipe.judge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", type=Path, metavar="RUN|EVALUATION", help="folders with episodes")
    parser.add_argument("--endpoint", required=True, metavar="URL", help="OpenAI-compatible server, up to and with /v1")
    parser.add_argument("--served-name", metavar="NAME", help="model name at the endpoint (default: the only one)")
    parser.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the endpoint's key")
    parser.add_argument("--votes", type=count, default=3, help="on each conversation (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--max-tokens", type=count, default=1024, help="of one reply (default: %(default)s)")
    parser.add_argument("--max-chars", type=count, default=60_000, help="of one conversation (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: outputs/judge/<served name>")
    parser.add_argument("--concurrency", type=count, default=16, help="requests at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one reply")
    parser.add_argument("--attempts", type=count, default=5, help="requests for one vote before it is lost")
    parser.add_argument("--backoff", type=float, default=1.0, help="seconds before the second, then doubled")
    given = parser.parse_args(arguments)
    if given.votes > votes.MOST_VOTES:
        parser.error(f"--votes {given.votes}: expected at most {votes.MOST_VOTES}")
    if given.api_key_env and given.api_key_env not in os.environ:
        parser.error(f"--api-key-env {given.api_key_env}: there is no such environment variable")
    return given


async def _judge(given: argparse.Namespace) -> int:
    asked = _asked(given.sources, given.max_chars)
    key = os.environ[given.api_key_env] if given.api_key_env else "EMPTY"
    sampling = {"temperature": given.temperature, "max_tokens": given.max_tokens}
    requests = (given.timeout, given.attempts, given.backoff, sampling)
    async with Endpoint(
        given.endpoint, given.served_name, key, *requests, require=_require_vote, named=NAMED
    ) as endpoint:
        model = endpoint.model or ""
        out = given.out or Path("outputs") / "judge" / _plain(model)
        _require_no_others(out, asked)
        kept = Appended(out / "votes.jsonl")
        try:
            keys = {
                (item.file, item.query): [key_of(model, sampling, item.messages, n) for n in range(given.votes)]
                for item in asked
            }
            ballots = {
                one: Ballot(f"{item.file.with_suffix('')}, {item.query}, vote {n}", one, item.messages)
                for item in asked
                for n, one in enumerate(keys[item.file, item.query])
            }
            before = cast_before(out / "votes.jsonl")
            missing = [ballot for one, ballot in ballots.items() if one not in before]
            print(f"{len(ballots)} votes, {len(ballots) - len(missing)} of them cast before, kept in {out}", flush=True)
            lost = await cast(endpoint, missing, kept, given.concurrency)
        finally:
            kept.close()
        if endpoint.faults:
            kinds = ", ".join(f"{number} x {kind}" for kind, number in endpoint.faults.most_common())
            print(f"requests that brought no vote: {kinds}")
    if lost:
        return _lost(lost, len(ballots), out)
    _write(out, asked, keys, cast_before(out / "votes.jsonl"))
    return 0


def _asked(paths: Sequence[Path], longest: int) -> list[Asked]:
    """The conversations, those of one method together."""
    found, damaged = [], 0
    for path in paths:
        if not (given := sources.episodes(path)):
            raise JudgeError(
                all_lost(path)
                or f"{path} holds no episodes to judge: expected {sources.EPISODES} of an evaluation, or a run with "
                "<stage>/rollouts/val/<step>.jsonl"
            )
        for method in given:
            samples = len({item.sample for item in method.played})
            for item in method.played:
                if (record := item.record()) is None:
                    damaged += 1
                    continue
                file = Path(_plain(method.name)) / f"{_plain(item.subset)}.json"
                query = item.task if samples == 1 else f"{item.task}#{item.sample}"
                found.append(Asked(file, query, _entry(item, record), messages(record, longest)))
    if not found:
        raise JudgeError(f"all {damaged} stored episodes of {', '.join(map(str, paths))} are damaged")
    if damaged:
        print(f"NOTE {damaged} stored episodes are damaged and are not judged")
    twice = [name for name, number in Counter((item.file, item.query) for item in found).items() if number > 1]
    if twice:
        raise JudgeError(f"{twice[0][0]} would have {twice[0][1]} twice: two sources have one name; judge them apart")
    return found


def _entry(item: sources.Played, record: Mapping[str, Any]) -> dict[str, Any]:
    steps = [step for turn in record["turns"] for step in turn["steps"]]
    return {
        "query": "\n".join(turn["user"] for turn in record["turns"]),
        "tool_names": sorted({call["name"] for step in steps for call in step["calls"]}),
        "final_step": steps[-1]["text"] if steps else "",
        "length": len(steps),
        "cluster": "/".join(map(str, item.cluster)),
    }


def _require_no_others(out: Path, asked: Sequence[Asked]) -> None:
    """A folder of a method holds its votes of this judgement and no others, which would be read together with them."""
    ours = {out / item.file for item in asked}
    others = [path for folder in {path.parent for path in ours} for path in folder.glob("*.json") if path not in ours]
    if others:
        raise JudgeError(f"{min(others)} holds votes on what is not judged here; move it away, or choose another --out")


def _require_vote(said: Completion) -> None:
    read_vote(said)


def _plain(name: str) -> str:
    """As the name of a file or folder."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name).lstrip(".") or "_"


def _lost(lost: Mapping[str, str], wanted: int, out: Path) -> int:
    print(
        f"\nLOST: {len(lost)} of {wanted} votes; the same command asks for them again, and no file of votes is written"
    )
    for fault, times in Counter(lost.values()).most_common(3):
        print(f"  {times} x {one_line(fault)}")
    return LOST_STATUS


def _write(
    out: Path, asked: Sequence[Asked], keys: Mapping[tuple[Path, str], Sequence[str]], cast_votes: Mapping[str, str]
) -> None:
    files: dict[Path, dict[str, Any]] = defaultdict(dict)
    for item in asked:
        words = [cast_votes[key] for key in keys[item.file, item.query]]
        is_solved = {str(number): f"AnswerStatus.{word}" for number, word in enumerate(words)}
        files[item.file][item.query] = {**item.entry, "is_solved": is_solved}
    for file, entries in files.items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        votes.write_votes(out / file, entries)
    methods = sources.methods([*dict.fromkeys(out / file.parent for file in files)])
    print(f"\n{pass_rate_page.text(methods, methods[0])}\n\nwritten to {out}: python -m recipe.report --compare {out}")


if __name__ == "__main__":
    sys.exit(main())
