"""The images name files that are there, and are made by the set-up for a profile that it takes."""

from pathlib import Path

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
