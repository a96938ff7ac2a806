"""Write generated tasks, each of them verified, as a file that `data_prep` and `recipe.evaluate` take.

python -m bfcl_env.synthesis OUT/tasks.json --train 4000 --dev 100 --test 200 --seed 1
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import get_args

from bfcl_env.source import SourceError
from bfcl_env.synthesis import generate
from bfcl_env.synthesis.propose import DOMAINS, FORMS, Shape
from bfcl_env.synthesis.words import Words
from interaction.environment import Part


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bfcl_env.synthesis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="to write: a task in each line")
    for part in get_args(Part):
        parser.add_argument(f"--{part}", type=int, default=0, metavar="N", help=f"tasks of the {part} part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--classes", nargs="+", choices=DOMAINS, default=[*DOMAINS], metavar="CLASS", help="all by default"
    )
    parser.add_argument(
        "--forms", nargs="+", choices=FORMS, default=[*FORMS], metavar="CATEGORY", help="all by default"
    )
    parser.add_argument("--turns", nargs=2, type=int, default=[1, 4], metavar=("FEWEST", "MOST"))
    parser.add_argument("--operations", type=int, default=2, help="the most in one turn")
    parser.add_argument("--words", choices=get_args(Words), default="plain", help="the set of wordings")
    parser.add_argument("--linked", action="store_true", help="some request means what an earlier one has left")
    given = parser.parse_args()
    if not 1 <= given.turns[0] <= given.turns[1] <= 8 or not 1 <= given.operations <= 4:
        parser.error("--turns takes 1 to 8, the fewest first; --operations 1 to 4")
    classes, forms, turns = map(tuple, (given.classes, given.forms, given.turns))
    shape = Shape(classes, turns, given.operations, forms, given.words, given.linked)
    rejected: Counter[str] = Counter()
    began = time.process_time()
    programs, texts, functions = set(), set(), set()
    given.file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = given.file.with_name(given.file.name + ".unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        written = 0
        for part in get_args(Part):
            for entry in generate(part, getattr(given, part), given.seed, shape, rejected):
                print(json.dumps(entry, ensure_ascii=False), file=file)
                written += 1
                programs.add(entry["program"])
                texts.add(json.dumps(entry["question"]))
                functions |= {call.partition("(")[0] for turn in entry["ground_truth"] for call in turn}
    os.replace(unfinished, given.file)
    rate = written / (time.process_time() - began)
    print(f"{given.file}: {written} tasks, {rate:.0f} a second of one core")
    print(f"  {len(programs)} programs, {len(texts)} texts, {len(functions)} functions")
    for reason, count in rejected.most_common():
        print(f"  {count} thrown away: {reason}")


if __name__ == "__main__":
    try:
        main()
    except (SourceError, ValueError) as error:
        sys.exit(str(error))
