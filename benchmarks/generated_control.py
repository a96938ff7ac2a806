"""The control of generated tasks: the same validation, trained on BFCL's own training tasks alone.

    python -m benchmarks.generated_control data/generated/generated.json data/control/control.json

writes the held-out tasks of the first file, and in place of its training tasks the short ones of BFCL's training half,
repeated. The warm start gets as many characters of gold conversations, the stages as many rows.
"""

import argparse
import json
from itertools import cycle, islice
from pathlib import Path

from bfcl_env.source import read_rows
from data_prep.laptop import OWN, _length, _pool
from interaction.environment import load_tasks, register


def entries(generated: Path) -> list[dict]:
    given = [json.loads(line) for line in generated.read_text(encoding="utf-8").splitlines()]
    register({generated.stem: str(generated)})
    tasks = [task for task in load_tasks(generated.stem).values() if task.part == "train"]
    to_read = sum(map(_length, tasks[: -sum(OWN.values())]))
    own = _pool("multi_turn_base", "train")
    ids = {task.id for task in own}
    rows = {row["id"]: row for row in read_rows("BFCL_v4_multi_turn_base.json") if row["id"] in ids}
    gold = {row["id"]: row["ground_truth"] for row in read_rows("possible_answer/BFCL_v4_multi_turn_base.json")}
    fields = ("question", "initial_config", "involved_classes")
    chosen, warm = [], 0
    for task in cycle(own):
        if warm >= to_read:
            break
        chosen.append(task)
        warm += _length(task)
    chosen += islice(cycle(own), sum(OWN.values()))
    print(f"{len(chosen) - sum(OWN.values())} conversations of {warm} characters; generated: {to_read} characters")
    trained = [
        {"id": f"multi_turn_base_{90000 + number}", "ground_truth": gold[task.id], "part": "train"}
        | {name: rows[task.id][name] for name in fields}
        for number, task in enumerate(chosen)
    ]
    return [*trained, *(entry for entry in given if entry["part"] != "train")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generated", type=Path, help="JSON file of generated tasks")
    parser.add_argument("out", type=Path, help="JSON file to write")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries(given.generated))
    given.out.write_text(lines, encoding="utf-8")
