"""What is played here and elsewhere, to be compared: gold of every task, and mutants of it."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bfcl_env.proof.mutants import mutants
from interaction import get_protocol
from interaction.environment import GoldMessage, UserWords, load_tasks

PROTOCOL = get_protocol("think_xml")
PACKAGE = "bfcl_grpo_environments"
PLAYER = Path(__file__).parent / "player.py"
Play = dict[str, Any]
"""environment, task_id, and items: {"calls": [[name, arguments]], "text"}, {"answer", "text"} or {"hear": words}."""


def gold_plays(environment: str) -> Iterator[Play]:
    """Gold of every task that has one and that the protocol can write."""
    for task in load_tasks(environment).values():
        items = [_item(message) for message in task.gold()]
        if any("text" in item for item in items):
            yield {"environment": environment, "task_id": task.id, "items": items}


def mutant_plays(count: int = 200) -> Iterator[Play]:
    """The first mutants of BFCL's gold that JSON can write (not those with an argument by position)."""
    for mutant in mutants(0, 2 * count):
        turns = [([GoldMessage(turn)] if turn else []) + [GoldMessage(answer="done")] for turn in mutant.turns]
        try:
            items = [_item(message) for turn in turns for message in turn]
        except ValueError:
            continue
        yield {"environment": "bfcl", "task_id": mutant.scenario.id, "items": items}
        if not (count := count - 1):
            return


def _item(message: GoldMessage | UserWords) -> dict[str, Any]:
    if isinstance(message, UserWords):
        return {"hear": message.text}
    if not message.calls:
        return {"answer": message.answer or "done", "text": PROTOCOL.render_answer("t", message.answer or "done")}
    text = PROTOCOL.render_calls("t", message.calls)
    return {"calls": [[call.name, call.arguments] for call in message.calls], "text": text}


def write(plays: Iterable[Play], path: Path) -> None:
    path.write_text("".join(f"{json.dumps(play)}\n" for play in plays), "utf-8")


def records(plays: Path) -> list[dict[str, Any]]:
    """What `player.py` makes of these plays with the packages of this checkout."""
    out = plays.with_suffix(".here.jsonl")
    command = [sys.executable, "-P", str(PLAYER), "conversation", "", str(plays), str(out)]
    subprocess.run(command, check=True)
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def verdicts(record: dict[str, Any]) -> list[Any]:
    """Of the episode and of its turns, by both rules."""
    return [record["outcome"], *((turn["passed"], turn["facts"]["passed_official"]) for turn in record["turns"])]
