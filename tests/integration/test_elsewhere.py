"""The environments in other installations: the wheel, without torch, and each library that there is an adapter to.

Each plays gold and mutants to the records that they have here. It installs 3 GB and plays for 25 minutes. Variables:

    NO_ELSEWHERE=1                  skips all of it
    ELSEWHERE_ENVIRONMENTS=FOLDER   keeps the installations there, and takes those that are there
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from support import elsewhere

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("bfcl-eval==2026.3.23", "inspect-evals==0.26.0")
INSTALLED = {
    "clean": (),
    "trl": ("trl==1.16.0", "transformers==5.10.4", "torch==2.13.0", "jmespath"),
    "verifiers": ("verifiers==0.4.0", "uv"),
    "openenv": ("openenv==0.10.0",),
}
"""What each installation has beside the wheel and the tasks."""
PLAYED = [
    ("clean", "conversation", ("mutants", "bfcl", "bfcl_single", "tau")),
    ("trl", "trl", ("mutants", "bfcl", "tau_solo")),
    ("trl", "trainer", ("one",)),
    ("verifiers", "verifiers", ("mutants", "bfcl")),
    ("verifiers", "null", ("one",)),
    ("openenv", "openenv", ("mutants", "bfcl", "bfcl_single")),
]

pytestmark = [pytest.mark.slow, pytest.mark.skipif("NO_ELSEWHERE" in os.environ, reason="NO_ELSEWHERE is set")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT / "elsewhere"]
    subprocess.run(build, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def plays(folder: Path) -> dict[str, Path]:
    """Files of what is played, and beside them the records that it has here."""
    made = {"mutants": [*elsewhere.mutant_plays()]}
    for name in ("bfcl", "bfcl_single", "tau"):
        made[name] = [*elsewhere.gold_plays(name)]
    made["tau_solo"] = [play for play in made["tau"] if not any("hear" in item for item in play["items"])]
    made["one"] = made["bfcl"][:1]
    assert [len(made[name]) for name in ("mutants", "bfcl", "bfcl_single", "tau")] == [200, 800, 3621, 4734]
    for name, those in made.items():
        elsewhere.write(those, folder / f"{name}.jsonl")
    return {name: folder / f"{name}.jsonl" for name in made}


def python(name: str, wheel: Path, folder: Path) -> Path:
    """The Python of an installation, with this wheel."""
    kept = Path(os.environ.get("ELSEWHERE_ENVIRONMENTS", folder)) / name
    found = kept / "bin" / "python"
    install = [str(found), "-m", "pip", "install", "-q"]
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(kept)], check=True)
        subprocess.run([*install, str(wheel), *INSTALLED[name]], check=True)
        subprocess.run([*install, "--no-deps", *TASKS], check=True)
    subprocess.run([*install, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return found


def run(interpreter: Path, *arguments: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = kept | {"PATH": f"{interpreter.parent}:{os.environ['PATH']}"}
    away = {"cwd": interpreter.parent, "env": environment, "timeout": 3600}
    done = subprocess.run([interpreter, "-P", *arguments], capture_output=True, text=True, **away)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(("name", "how", "what"), PLAYED)
def test_gold_and_mutants_have_the_records_they_have_here(name, how, what, wheel, plays, folder) -> None:
    interpreter = python(name, wheel, folder)
    for file in what:
        there = folder / f"{file}.{name}.{how}.jsonl"
        imported = run(interpreter, str(elsewhere.PLAYER), how, elsewhere.PACKAGE, str(plays[file]), str(there))
        found, here = [*map(json.loads, there.read_text("utf-8").splitlines())], elsewhere.records(plays[file])
        if (name, file) == ("trl", "mutants"):  # TRL answers calls of functions that there are not itself
            assert 150 < sum(one == other for one, other in zip(found, here, strict=True)) < len(here)
            found, here = [*map(elsewhere.verdicts, found)], [*map(elsewhere.verdicts, here)]
        assert found == here and found
        assert name == "trl" or "torch" not in imported.split()


def test_an_engine_that_fails_is_no_zero_in_verifiers(wheel: Path, plays: dict[str, Path], folder: Path) -> None:
    interpreter, there = python("verifiers", wheel, folder), folder / "failing.jsonl"
    run(interpreter, str(elsewhere.PLAYER), "failing", elsewhere.PACKAGE, str(plays["one"]), str(there))
    assert there.read_text() == ""


def test_the_wheel_is_small_has_one_package_and_passes_its_own_check(wheel: Path, folder: Path) -> None:
    assert wheel.stat().st_size < 1_000_000
    folders = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {elsewhere.PACKAGE}
    lines = run(python("clean", wheel, folder), "-m", f"{elsewhere.PACKAGE}.bfcl_env", "validate").splitlines()
    assert [line.split()[2] for line in lines if line.startswith("gold  ")] == ["200/200"] * 4
