"""How long the page of a run takes to open: from the request until its episodes can be read, filtered and searched.

    .venv/bin/python -m benchmarks.bench_report outputs/default

The run is copied, its page is written with as many of its stored episodes as a page holds (2,000), and a headless
Chromium opens it several times, each time as if for the first time. Seconds are the browser's own (User Timing: the
mark `usable` counts from the start of the navigation).
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.browser import Tab, chromium
from recipe.report import page as report

KEPT = ("metrics", "rollouts", "config", "*.json")
"""What a page is made of; checkpoints and models stay where they are."""


def main() -> None:
    """Entry point of `python -m benchmarks.bench_report`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_report", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="a run with stored episodes, such as outputs/default")
    parser.add_argument("--times", type=int, default=5, help="how often the page is opened (default: 5)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = copy(given.run, Path(folder) / "run")
        began = time.perf_counter()
        page = report.write(run)
        print(f"written in {time.perf_counter() - began:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        with chromium(Path(folder) / "browser") as tab:
            opened = [measure(tab, page) for _ in range(given.times)]
    print(f"{opened[0][0]} episodes, {opened[0][1] / 1e6:.1f} MB of JSON")
    for number, name in enumerate(("usable", "next episode", "filter", "first search", "next search"), start=2):
        found = [one[number] for one in opened]
        print(f"{name:14} median {median(found):6.0f} ms, longest {max(found):6.0f} ms")


def copy(run: Path, to: Path) -> Path:
    """What the page is made of; nothing is written into the run itself."""
    for pattern in KEPT:
        for path in [*run.glob(pattern), *run.glob(f"*/{pattern}")]:
            place = to / path.relative_to(run)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, place, dirs_exist_ok=True)
            else:
                shutil.copy(path, place)
    return to


def measure(tab: Tab, page: Path) -> tuple[float, ...]:
    """Episodes, characters of their JSON; milliseconds until usable, and of what is done then, layout included."""
    tab.open(page)
    usable = tab.value("performance.getEntriesByName('usable')[0].startTime")
    count, size = tab.value("[episodes.length, JSON.stringify(episodes).length]")

    def took(action: str) -> float:
        timed = f"{action}; document.body.offsetHeight; return performance.now() - began"
        return float(tab.value(f"(() => {{ const began = performance.now(); {timed}; }})()"))

    moved, listed = took("move(1)"), took("filter()")
    first, second = (took(f"byId('search').value = '{word}'; filter()") for word in ("directory", "file"))
    return count, size, usable, moved, listed, first, second


if __name__ == "__main__":
    main()
