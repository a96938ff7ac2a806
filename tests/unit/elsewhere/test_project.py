"""The project that the wheel of the environments is built from: whole by itself, small, and of this version."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import elsewhere

ROOT = Path(__file__).parents[3]
OURS = ("interaction", "rewards", "bfcl_env", "tau_env", "adapters", "recipe", "data_prep")
HEAVY = ("torch", "verl", "vllm", "ray", "transformers", "omegaconf")

REFUSES = f"""
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {(*OURS, *HEAVY)!r}:
            raise ImportError(f"{{name}} is not part of the wheel")
sys.meta_path.insert(0, Refused())
"""
"""In place of an environment without these packages."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, as setuptools gets it."""
    folder = tmp_path_factory.mktemp("project")
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'elsewhere')!r}); import backend, pathlib"
    code += f"; backend.lay_out(pathlib.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    return folder


def run(project: Path, code: str, *arguments: str) -> str:
    """What Python code prints that finds nothing of this checkout."""
    command = [sys.executable, "-P", "-c", f"{REFUSES}\n{code}", *arguments]
    done = subprocess.run(command, cwd=project, env={"PYTHONPATH": str(project)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_no_module_names_one_outside_and_each_is_imported_without_what_trains(project: Path) -> None:
    old, names = rf"(?:{'|'.join((*OURS, 'torch', 'verl'))})", []
    for path in project.rglob("*.py"):
        named = re.findall(rf"^\s*(?:from|import) {old}\b.*|-m {old}\b.*", path.read_text("utf-8"), re.MULTILINE)
        assert not named, path
        name = ".".join(path.relative_to(project).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__") and ".adapters." not in name:
            names.append(name)
    code = "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(len(sys.argv) - 1)"
    assert run(project, code, *names).split() == [str(len(names))] and len(names) > 50


@pytest.mark.parametrize("environment", ["bfcl", "bfcl_single", "tau"])
def test_what_is_played_there_has_the_record_it_has_here(project: Path, tmp_path: Path, environment: str) -> None:
    plays = [*elsewhere.mutant_plays(60)] if environment == "bfcl" else []
    plays += [*elsewhere.gold_plays(environment)][::40]
    elsewhere.write(plays, tmp_path / "plays.jsonl")
    code = f"import runpy; play = runpy.run_path({str(elsewhere.PLAYER)!r})['main']; play(*sys.argv[1:])"
    kept = "conversation", elsewhere.PACKAGE, str(tmp_path / "plays.jsonl"), str(tmp_path / "there.jsonl")
    run(project, code, *kept)
    there = [json.loads(line) for line in (tmp_path / "there.jsonl").read_text("utf-8").splitlines()]
    assert there == elsewhere.records(tmp_path / "plays.jsonl") and len(there) == len(plays) > 50
    assert {record["outcome"]["passed"] for record in there} == ({True, False} if environment == "bfcl" else {True})


def test_the_wheel_has_the_recipes_version_and_licence() -> None:
    files = ROOT / "pyproject.toml", ROOT / "elsewhere" / "pyproject.toml"
    ours, theirs = (tomllib.loads(file.read_text())["project"] for file in files)
    for key in ("version", "license", "license-files"):
        assert ours[key] == theirs[key]
