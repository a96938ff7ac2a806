"""Times the reader of step CSVs on a generated file, in a process of its own, and says how much memory it took.

    python benchmarks/bench_steptool.py          # 50,000 rows of four steps, 5 kB each; half a minute

The file is written to a temporary folder and removed. `--rows` and `--kb` give it another size.
"""

import argparse
import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 4
WORDS = "the weather in Oslo\n is 'fine' \"today\" {}[],: \\u00e9 error response <|im_end|>".split(" ")


def write(path: Path, rows: int, kb: float) -> None:
    """A file in StepTool's form, the same for the same arguments."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=max(1, int(kb * 1000 / STEPS / 2 / 9)))) for _ in range(200)]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, delimiter="\t")
        out.writerow(["prompt", "response", "reward"])
        for _ in range(rows):
            prompts, responses = chance.choices(texts, k=STEPS), chance.choices(texts, k=STEPS)
            out.writerow([prompts, responses, [chance.randrange(31) / 30 for _ in range(STEPS)]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--kb", type=float, default=5.0, help="characters of a row, in thousands, about")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.csv"
        write(path, given.rows, given.kb)
        command = [sys.executable, "-m", "data_prep", "--steptool", str(path), "--out", str(Path(folder) / "out")]
        before, began = os.times(), time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True)
        wall, after = time.perf_counter() - began, os.times()
        processor = after.children_user + after.children_system - before.children_user - before.children_system
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        size = path.stat().st_size / 1e6
        told = f"{wall:.1f} s, {processor:.1f} s of a core, at most {peak:.0f} MB of memory"
        print(f"{given.rows} rows, {size:.0f} MB: {told}")


if __name__ == "__main__":
    main()
