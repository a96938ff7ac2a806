"""A project in a folder with any printable name: its configurations compose there, and its command answers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = ("é ü", "it's", "a,b=c", "#1 [x]{y}", "50% $HOME", "日本 (2)")
CODE = """
import os, sys
from pathlib import Path
from recipe.launch.compose import compose
from recipe.curriculum import stages
from recipe.preflight import check_settings
for name in {names!r}:
    Path(name).mkdir()
    os.chdir(name)
    os.environ["RUN"] = name
    for config in ("stage1", "stage3"):
        check_settings(compose(config))
    path = stages.find("curriculum")
    listed = stages.read_stages(stages.read_yaml(path, ("stages", "overrides")), path)
    assert listed[0].composed.paths.run == f"outputs/{{name}}", listed[0].composed.paths.run
    compose("sft", group="sft_hardware")
    os.chdir("..")
"""


def project(folder: Path) -> Path:
    """The parts of the project that composing needs, in a folder of their own."""
    for part in ("recipe", "interaction", "bfcl_env", "rewards"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def answer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name not in ("MODEL", "RUN")}
    environment |= {"HARDWARE": "tiny", "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_project_and_its_runs_may_have_any_printable_name(tmp_path: Path) -> None:
    folder = project(tmp_path / "é ü, it's = #[x]{y} 50% $HOME")
    said = answer(folder, "-c", CODE.format(names=NAMES))
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("name", ["a${b}", "a\nb"])
def test_a_folder_whose_name_no_configuration_can_hold_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    said = subprocess.run(
        [sys.executable, "-m", "recipe.train", "preflight_only=true"],
        cwd=tmp_path / name,
        env={**os.environ, "HARDWARE": "tiny", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 1
    assert said.stderr.strip().endswith("has characters that no configuration can hold. Rename it.")
    assert "\n" not in said.stderr.strip()


def test_options_that_only_show_something_work_in_such_a_folder(tmp_path: Path) -> None:
    said = answer(project(tmp_path / "é, it's"), "-m", "recipe.train", "--config-name", "stage2", "--cfg", "job")
    assert said.returncode == 0, said.stderr
    assert "stage2_base" in said.stdout
