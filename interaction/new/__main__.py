"""Write an environment to begin with, and its test: NAME.py and test_NAME.py in this folder.

python -m interaction.new NAME
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m interaction.new", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="small letters, digits and _")
    name = parser.parse_args(arguments).name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        parser.error(f"NAME {name}: give small letters, digits and _")
    example = Path(__file__).with_name("library.py")
    files = {Path(f"{name}.py"): example, Path(f"test_{name}.py"): example.with_name("test_library.py")}
    if there := [str(path) for path in files if path.exists()]:
        print(f"{', '.join(there)} exists already; choose another name", file=sys.stderr)
        return 2
    for path, source in files.items():
        path.write_text(source.read_text().replace("library", name).replace("Library", name.title().replace("_", "")))
    print(f"{name}.py and test_{name}.py are written: a class, its tasks, and a test that gold passes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
