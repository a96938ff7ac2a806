"""The files that tools and people expect in a repository hold what their formats ask for, and name what is there."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [pattern.removesuffix("*") for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docker/README.md")]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def loaded(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


# --- citation --------------------------------------------------------------------------------------------------------

CFF = {"cff-version", "message", "title", "type", "authors", "version", "license", "keywords", "references"}
PERSON, ENTITY = {"family-names", "given-names"}, {"name"}


def test_the_citation_is_cff_and_of_this_version() -> None:
    cff = loaded("CITATION.cff")
    assert set(cff) == CFF and cff["cff-version"] == "1.2.0" and cff["type"] == "software"
    assert (cff["version"], cff["license"]) == (PROJECT["project"]["version"], PROJECT["project"]["license"])
    for reference in cff["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        assert re.fullmatch(
            r"https://arxiv\.org/abs/\d{4}\.\d{5}", reference.get("url", "https://arxiv.org/abs/0000.00000")
        )
    for author in [*cff["authors"], *(one for reference in cff["references"] for one in reference["authors"])]:
        assert set(author) in (PERSON, ENTITY) and all(author.values())


# --- pages -----------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_and_settings_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sh|md|yaml|Dockerfile|txt))[` ]", page.read_text()):
        assert (ROOT / name).exists() or name == "train_fctncalling.py", name
    for module in re.findall(r"-m (recipe\.\w+)", page.read_text()):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists() or (
            ROOT / module.replace(".", "/")
        ).is_dir()


def test_the_changelog_has_the_form_it_names() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    assert versions[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in versions[1:])
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"} and kinds


# --- packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["*"]


# --- CI and hooks ----------------------------------------------------------------------------------------------------


def test_ci_runs_what_a_person_runs() -> None:
    jobs = loaded(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {word for command in commands for word in re.findall(r"bash (\S+?)[;\s]", command)}
    assert named == {".ci/run", "run_tests.sh"} and all((ROOT / name).is_file() for name in named)
    profile = next(iter(jobs.values()))["env"]["HARDWARE"]
    assert (ROOT / f"recipe/config/hardware/{profile}.yaml").is_file()
    assert all(
        re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        for job in jobs.values()
        for step in job["steps"]
        if "uses" in step
    )


def test_hooks_are_the_programs_that_the_tests_run() -> None:
    hooks = [hook for repo in loaded(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    runs = (ROOT / "run_tests.sh").read_text()
    for hook in hooks:
        assert hook["language"] == "system" and hook["entry"].split(" --")[0] in runs


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_github_asks_for(path: Path) -> None:
    form = loaded(path)
    assert set(form) <= {"name", "description", "labels", "body"} and form["name"] and form["description"]
    ids = [item["id"] for item in form["body"] if item["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 0 and any(item.get("validations", {}).get("required") for item in form["body"])
    for item in form["body"]:
        assert item["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        assert set(item) <= {"type", "id", "attributes", "validations"}
        assert item["attributes"]["value" if item["type"] == "markdown" else "label"]
        if item["type"] == "dropdown":
            assert set(item["attributes"]["options"]) == {
                path.stem for path in (ROOT / "recipe/config/hardware").iterdir()
            }


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


def test_what_the_commands_make_is_in_no_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    made = [
        line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if re.fullmatch(r"/[\w.]+/", line)
    ]
    assert {name for name in made if name not in ("build", "dist")} <= set(ignored) and ".git" in ignored
