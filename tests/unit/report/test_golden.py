"""Pages, tables and index of two runs, to the digit. `python tests/unit/report/test_golden.py` writes them anew."""

import re
import sys
from pathlib import Path

import pytest

from recipe.report import page, tables, validation
from recipe.stage import state

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
from support.golden_runs import golden_run

GOLDEN = Path(__file__).parent / "golden"


def made(folder: Path) -> dict[str, str]:
    """Name -> text: pages as lines of what a reader sees, figures as their labels and numbers of lines."""
    folder = folder / "golden"
    one, two = (golden_run(folder / name, seed) for name, seed in (("one", 1), ("two", 2)))
    pages = {"page": page.write(one, (two,)).read_text(), "page_of_one": page.write(two).read_text()}
    note = {"stage": "stage1_format", "setting": "stage.gate.metric", "metric": "val_dev/acc"}
    for stage in ("stage1_format", "stage2_base"):
        state.update(two / stage, done=state.Done(12, 12, 12, 0.0), chose=(note,))
    pages["page_decided"] = page.write(two).read_text()
    pages["index"] = page.write_index(folder)[0].read_text()
    found = {name: seen(text.replace(str(folder), "RUNS")) for name, text in pages.items()}
    table = f"{tables.table([one, two])}\n\n{validation.table([one, two])}\n\n{tables.table([one])}\n"
    return found | {"tables": table}


def seen(html: str) -> str:
    """The text of a page, a line for each row of a table, without scripts and styles."""
    html = re.sub(r"<(script|style|defs|metadata)\b.*?</\1>", "", html, flags=re.DOTALL)
    html = re.sub(r"<svg.*?</svg>", lambda svg: f"\n{_drawn(svg[0])}\n", html, flags=re.DOTALL)
    html = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", html)
    html = re.sub(r"\s*\n\s*", " ", html)
    html = re.sub(r"<(tr|h1|h2|p|table|summary|pre|nav|div|label)\b[^>]*>", "\n", html)
    lines = (re.sub(r"<[^>]+>", "", line).strip() for line in html.splitlines())
    return "\n".join(re.sub(r"[ \t]+", " ", line) for line in lines if line) + "\n"


def _drawn(svg: str) -> str:
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return f"<p>figure: {', '.join(labels)}; {svg.count('<path')} paths"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made(tmp_path_factory.mktemp("runs"))


def test_the_pages_and_tables_are_as_they_were(found: dict[str, str]) -> None:
    for name, text in found.items():
        assert text.splitlines() == (GOLDEN / f"{name}.txt").read_text().splitlines(), name


if __name__ == "__main__":
    import tempfile

    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in made(Path(folder)).items():
            (GOLDEN / f"{name}.txt").write_text(text)
