"""The files that tools and people expect in a repository hold what their formats ask for, and name what is there."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


# --- citation --------------------------------------------------------------------------------------------------------

PERSON, ENTITY = {"family-names", "given-names"}, {"name"}


# --- pages -----------------------------------------------------------------------------------------------------------


# --- packages --------------------------------------------------------------------------------------------------------


# --- CI and hooks ----------------------------------------------------------------------------------------------------


# --- images ----------------------------------------------------------------------------------------------------------


def instructions(path: Path) -> list[tuple[str, list[str]]]:
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split()[1:]) for line in lines]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_copies_what_is_there_and_what_the_setup_reads_before_it_runs(path: Path) -> None:
    found = instructions(path)
    assert (
        found[0][0] == "FROM"
        and found[0][1] == ["python:3.11-bookworm"]
        and "3.11" in PROJECT["project"]["requires-python"]
    )
    before = []
    for name, words in found:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in words[:-1])
            before += words[:-1]
        elif name == "RUN":
            break
    assert {"setup.sh", "recipe/scripts.sh", "pyproject.toml", "requirements"} <= set(before)
    assert {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]} <= set(before)
    assert "Not built" in path.read_text() and found[-1] == ("CMD", ['["bash",', '"run_all.sh"]'])


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_made_by_the_setup_for_a_profile_that_it_takes(path: Path) -> None:
    found = instructions(path)
    (profile,) = {
        word.partition("=")[2] for name, words in found if name == "ENV" for word in words if "HARDWARE" in word
    }
    assert (ROOT / f"recipe/config/hardware/{profile}.yaml").is_file()
    assert any(name == "RUN" and words[-2:] == ["bash", "setup.sh"] for name, words in found)
    assert ("cpu" in profile) is (path.stem == "cpu")
