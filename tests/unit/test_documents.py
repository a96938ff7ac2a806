"""What documents say is so: commands are there, the notebook prints what it shows, the site has all pages."""

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml

from benchmarks import rises
from recipe.reward import sample_record
from recipe.settings import CONFIG_DIR

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("[a-z]*/**/README.md"))]
SILENT = {"bfcl_env.augmentation", "bfcl_env.leaderboard.handler"}
"""Without options; needs packages of an environment of its own, and says so."""


def commands() -> dict[str, list[str]]:
    """Program, or module, of each documented command and the documents that name it."""
    found: dict[str, list[str]] = {}
    for path in DOCUMENTS:
        for module, program in re.findall(r"\bbin/python -m ([\w.]+)|\bbin/([a-z][\w.-]*)", path.read_text("utf-8")):
            found.setdefault(module or program, []).append(path.name)
    return found


MODULES = sorted(name for name in commands() if name not in ("python", "python3", "pip", "bash"))


def test_documented_commands_are_modules_or_programs_of_the_environment() -> None:
    lacking = []
    for name in MODULES:
        package, *inner = name.split(".")
        spec = importlib.util.find_spec(package)  # of what is in it this would import the package: seconds
        file = Path(*(spec.submodule_search_locations or ()) if spec else ()).joinpath(*inner)
        is_module = bool(spec) and (file.with_suffix(".py").is_file() or (file / "__main__.py").is_file())
        if not is_module and not (Path(sys.executable).parent / name).exists():
            lacking.append((name, commands()[name]))
    assert not lacking


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODULES if name not in SILENT])
def test_a_documented_command_answers_help(name: str) -> None:
    program = Path(sys.executable).parent / name
    command = [str(program)] if program.exists() else [sys.executable, "-m", name]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and "usage" in (done.stdout + done.stderr).lower(), done.stderr[-2000:]


def test_the_cells_of_the_notebook_print_what_is_stored():
    scope: dict = {}
    notebook = (ROOT / "docs" / "first_look.ipynb").read_text()
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 6
    for number, cell in enumerate(cells, 1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
        stored = "".join(line for output in cell["outputs"] for line in output["text"])
        assert printed.getvalue() == stored, f"cell {number}"


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2])
    assert len(listed) == len({*listed})
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {*listed} == written | {"reference/settings.md", "reference/classes.md", "rewards.md", "protocols.md"}


def test_the_site_builds_without_a_warning_and_has_every_setting_on_its_page(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "-r", "requirements/docs.txt"]
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"requirements/docs.txt cannot be installed (bash run_docs.sh): {done.stderr[-300:]}")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = unescape(re.sub("<[^>]*>", "", (tmp_path / "reference" / "settings.html").read_text(encoding="utf-8")))
    for name in ("base", "sft", "hardware/cpu", "algorithm/dapo"):
        content = yaml.safe_load((CONFIG_DIR / f"{name}.yaml").read_text(encoding="utf-8"))
        for section in content.keys() - {"defaults", "hydra"}:
            keys = content[section] if isinstance(content[section], dict) else ()
            missing = [key for key in keys if f"{key}:" not in page]
            assert f"{section}:" in page and not missing, (name, section, missing)


def test_the_tutorials_reward_takes_a_record() -> None:
    text = (ROOT / "docs" / "quick_start.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(def compute_score.*?)```", text, re.DOTALL)
    names: dict = {}
    exec(code, names)  # ours, from our own page
    result = names["compute_score"]("bfcl/base", "", "[]", {"episode": sample_record()})
    assert result["score"] <= 1 and result["malformed"] >= 0


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
