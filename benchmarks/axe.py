"""What axe-core finds on pages, in light and in dark: contrast, names, focus, structure.

    npm install --prefix /tmp/axe axe-core
    .venv/bin/python -m benchmarks.axe /tmp/axe/node_modules/axe-core/axe.min.js outputs/default/report.html
    bash run_docs.sh    # and in another terminal, with the same axe.min.js: http://127.0.0.1:8000/index.html ...

axe-core (Deque, MPL-2.0) is not among the pins. It exits with 1 if anything is serious or critical.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.browser import Tab, chromium

SCHEMES = ("light", "dark")
GRAVE = ("serious", "critical")
LOADED = "document.readyState === 'complete' && (!document.querySelector('script#data') || document.body.dataset.ready)"


def main() -> None:
    """Entry point of `python -m benchmarks.axe`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.axe", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("axe", type=Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("pages", nargs="+", metavar="PAGE", help="HTML files, or addresses")
    given = parser.parse_args()
    grave = 0
    for scheme in SCHEMES:  # each in a browser of its own: pages remember colours
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, chromium(Path(folder)) as tab:
            for page in given.pages:
                found = list(violations(tab, given.axe, page, scheme))
                grave += sum(one["impact"] in GRAVE for one in found)
                print(f"{page} {scheme}: {', '.join(map(told, found)) or 'nothing'}")
    print(f"\n{grave} serious or critical on {len(given.pages)} pages")
    sys.exit(grave > 0)


def violations(tab: Tab, axe: Path, page: str, scheme: str) -> Iterator[Mapping[str, Any]]:
    """Rules that a page breaks, with their impact and the elements that break them."""
    tab.colors(scheme)
    tab.open(page if "://" in page else Path(page), LOADED)
    tab.value(axe.read_text(encoding="utf-8") + "; 0")
    yield from json.loads(tab.value("axe.run().then((found) => JSON.stringify(found.violations))"))


def told(one: Mapping[str, Any]) -> str:
    """A rule in a line, with the first element that breaks it."""
    first = one["nodes"][0]
    return f"{one['impact']} {one['id']} ({len(one['nodes'])}, {' '.join(map(str, first['target']))})"


if __name__ == "__main__":
    main()
