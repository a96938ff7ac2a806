"""The commands that the documents name are there: `.venv/bin/vllm` was, and could not start on the CPU profile."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
