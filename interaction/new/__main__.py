"""Write an environment to begin with, and its test: NAME.py and test_NAME.py in this folder.

python -m interaction.new NAME
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or not re.fullmatch(r"[a-z][a-z0-9_]*", given[0]):
        print("usage: python -m interaction.new NAME (small letters, digits and _)", file=sys.stderr)
        return 2
    name = given[0]
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
