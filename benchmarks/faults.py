"""Whether the tests notice small wrong edits: those of docs/data/faults.json, each in a copy of the tree.

    python -m benchmarks.faults before [ID ...] [--commit COMMIT]

makes each edit alone, runs the tests of its room until the first one fails, and notes under that name which it was. An
edit whose old text does not stand exactly once in its file is said to be out of date: give its new file and texts.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "data" / "faults.json"
LINKS = (".venv", "models")
FIRST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


def outcome(tree: Path, fault: dict[str, Any], tests: list[str], seconds: float) -> str:
    """The first test that fails, or what became of the fault."""
    path = tree / fault["file"]
    text = path.read_text() if path.exists() else ""
    if (count := text.count(fault["old"])) != 1:
        return f"out of date: the old text stands {count} times in {fault['file']}"
    given = [name for name in dict.fromkeys([*fault["first"], *tests]) if (tree / name).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *given]
    path.write_text(text.replace(fault["old"], fault["new"]))
    try:
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"survived: nothing failed within {seconds:.0f} s"
    finally:
        path.write_text(text)
    if done.returncode == 0:
        return "survived"
    failed = FIRST_FAILED.search(done.stdout)
    return failed[1] if failed else f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("when", help="under which the results are noted")
    parser.add_argument("ids", nargs="*", metavar="ID", help="faults; those without a result by default")
    parser.add_argument("--commit", default="HEAD", help="tree to edit (default: HEAD)")
    parser.add_argument("--seconds", type=float, default=1200, help="for the tests of one fault (default: 1200)")
    given = parser.parse_args()
    found = json.loads(FILE.read_text())
    known = {fault["id"] for fault in found["faults"]}
    if unknown := set(given.ids) - known:
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    with tempfile.TemporaryDirectory(prefix="faults_") as folder:
        tree = Path(folder)
        archive = subprocess.run(["git", "archive", given.commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
        for name in LINKS:
            if (ROOT / name).exists() and not (tree / name).exists():
                (tree / name).symlink_to((ROOT / name).resolve())
        results = found.setdefault("results", {}).setdefault(given.when, {})
        for fault in found["faults"]:
            if fault["id"] in given.ids or (not given.ids and fault["id"] not in results):
                began = time.monotonic()
                results[fault["id"]] = outcome(tree, fault, found["rooms"][fault["room"]], given.seconds)
                print(f"{fault['id']}: {results[fault['id']]} ({time.monotonic() - began:.0f} s)", flush=True)
                FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    missed = [name for name, result in results.items() if "::" not in result]
    print(f"{len(results) - len(missed)} of {len(known)} caught; not caught: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
