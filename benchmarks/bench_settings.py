"""How long `python -m recipe.train` takes to say that a setting is wrong, and that all checks passed.

    .venv/bin/python benchmarks/bench_settings.py [--runs 5]

Wall and processor seconds of the command, the least of some runs, and of what it does before it can answer. A wrong
setting should be refused within two seconds on a machine that has nothing else to do.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = ["-m", "recipe.train", "--config-name", "stage1", "preflight_only=true"]
COMMANDS = {
    "Python itself": ["-c", "pass"],
    "its imports": ["-c", "import recipe.train, recipe.settings.reading, recipe.preflight.settings"],
    "composing": ["-c", "from recipe.launch.compose import compose; compose('stage1')"],
    "a misspelt key refused": [*TRAIN, "trainer.total_epoch=3"],
    "a wrong type refused": [*TRAIN, "data.train_batch_size=abc"],
    "a wrong choice refused": [*TRAIN, "stage.over_budget=x"],
    "what does not fit refused": [*TRAIN, "actor_rollout_ref.actor.ppo_mini_batch_size=3"],
    "all checks": TRAIN,
}


def seconds(arguments: list[str], runs: int) -> tuple[float, float]:
    """The least wall and processor time of one command."""
    environment = {**os.environ, "HARDWARE": "tiny", "PYTHONPATH": str(ROOT)}
    found = []
    for _ in range(runs):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return min(wall for wall, _ in found), min(processor for _, processor in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(f"{'':28}   wall  processor, least of {runs}, s")
    for name, arguments in COMMANDS.items():
        wall, processor = seconds(arguments, runs)
        print(f"{name:28} {wall:6.2f}  {processor:6.2f}", flush=True)


if __name__ == "__main__":
    main()
