"""Images name files that are there and are made for a profile; a page's tables are those of its results."""

import re
from pathlib import Path

import pytest

from benchmarks import rises

ROOT = Path(__file__).parents[2]


def test_an_image_copies_what_the_setup_reads_and_runs_it_for_its_profile() -> None:
    for path in (ROOT / "docker").glob("*.Dockerfile"):
        text = path.read_text().replace("\\\n", " ")
        lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
        assert lines[0] == ["FROM", "python:3.11-bookworm"]
        setup = next(number for number, words in enumerate(lines) if words[-2:] == ["bash", "setup.sh"])
        copied = {source for words in lines[:setup] if words[0] == "COPY" for source in words[1:-1]}
        assert {"setup.sh", "recipe/scripts.sh", "pyproject.toml", "requirements"} <= copied
        assert all((ROOT / source).exists() for source in copied)
        (profile,) = (word.partition("=")[2] for words in lines for word in words if word.startswith("HARDWARE="))
        assert (ROOT / f"recipe/config/hardware/{profile}.yaml").is_file()
        assert ("cpu" in profile) is (path.stem == "cpu")


def test_tables_of_several_seeds_are_those_of_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = dict(re.findall(r"<!-- rises (\w+) -->\n(.*?)\n<!-- end -->", rises.PAGE.read_text(), re.S))
    assert {path.stem.rpartition("_")[0] for path in rises.RESULTS.glob("*.json")} == blocks.keys()
    assert [name for name, block in blocks.items() if block != rises.table(name)] == []
