"""The set-up: complete pins, a setup.sh that refuses clearly, the entry points that plug us into verl, and clusters."""

import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

# Stands in for Python 3.11: notes what pip is asked for, installs nothing.
FAKE_PYTHON = """\
#!/usr/bin/env bash
case "$*" in
    *version_info*) echo 3.11 ;;
    "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *" install "*) echo "$*" >>pip.log; echo "words of pip" ;;
esac
"""


def read_pins(profile: str) -> dict[str, str]:
    """Names (canonical) and versions of `requirements/<profile>.txt`."""
    lines = (ROOT / "requirements" / f"{profile}.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin), f"not a complete pin: {pin!r}"
    names = {canonicalize_name(name): version for name, version in (pin.split("==") for pin in pins)}
    assert len(names) == len(pins), "a package is pinned twice"
    return names


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts and of what setup.sh reads, with a stand-in for Python."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    (folder / "recipe").mkdir()
    for name in ("setup.sh", "pyproject.toml", "recipe/scripts.sh", *(path.name for path in ROOT.glob("run_*.sh"))):
        shutil.copy(ROOT / name, folder / name)
    (folder / "python").write_text(FAKE_PYTHON)
    (folder / "python").chmod(0o755)
    return folder


def run_setup(checkout: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"HARDWARE": "cpu", "PYTHON": str(checkout / "python"), "TORCH_INDEX_URL": ""}
    given = os.environ | own | environment
    script = ["bash", *(command or ["setup.sh"])]
    return subprocess.run(script, cwd=checkout, env=given, capture_output=True, text=True, timeout=20)


def test_every_pin_accepts_the_first_python_3_11_and_the_site_is_apart():
    asked = {name: importlib.metadata.metadata(name)["Requires-Python"] for name in read_pins("cpu")}
    assert [f"{name} {python}" for name, python in asked.items() if "3.11.0" not in SpecifierSet(python or "")] == []
    for profile in ("cpu", "gpu"):
        assert not read_pins(profile).keys() & read_pins("docs").keys()


def test_gpu_pins_are_those_of_verls_own_vllm_extra():
    gpu = read_pins("gpu")
    assert (gpu["torch"], gpu["vllm"], gpu["transformers"]) == ("2.11.0", "0.24.0", "5.9.0")
    required = [Requirement(text) for text in importlib.metadata.requires("verl") or []]
    in_extra = [r for r in required if r.marker and r.marker.evaluate({"extra": "vllm"}) and r.name != "verl"]
    assert {"torch", "vllm", "transformers"} <= {r.name for r in in_extra}
    for requirement in in_extra:
        assert requirement.specifier.contains(gpu[canonicalize_name(requirement.name)], prereleases=True), requirement


NEEDING = [path.name for path in sorted(ROOT.glob("run_*.sh")) if path.name not in ("run_all.sh", "run_tests.sh")]


def test_a_script_answers_at_once_and_changes_nothing(checkout):
    before = {*checkout.rglob("*")}
    for *command, words in (
        *([script, "bash setup.sh"] for script in NEEDING),
        ["run_stage1.sh", "trainer.total_epochs=3", "MODEL=/a", "MODEL=/a bash run_stage1.sh"],
        ["run_all.sh", "RUN=a", "RUN=a bash run_all.sh"],
        ["setup.sh", "HARDWARE=gpu1", "HARDWARE=gpu1 bash setup.sh"],
    ):
        done = run_setup(checkout, *command)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, command
    assert run_setup(checkout, "run_all.sh", "--help").returncode == 0 and {*checkout.rglob("*")} == before


def test_setup_installs_torch_first_then_the_pins_then_the_project_and_again_where_a_pin_changes(checkout):
    done = run_setup(checkout, TORCH_INDEX_URL="file:///an/index")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 10 and "words of pip" not in done.stdout
    torch, pins, project = (checkout / "pip.log").read_text().splitlines()
    assert torch.endswith("install --index-url file:///an/index torch==2.13.0")
    assert pins.endswith("install --no-deps -r requirements/cpu.txt")
    assert project.endswith("install --no-deps --no-build-isolation -e .")
    again = run_setup(checkout)
    assert again.stdout.splitlines() == ["setup: .venv is up to date (profile cpu, set by HARDWARE)"]
    with (checkout / "requirements" / "cpu.txt").open("a") as file:
        file.write("one-more==1.0\n")
    run_setup(checkout)
    assert len((checkout / "pip.log").read_text().splitlines()) == 6


def test_the_number_of_gpus_chooses_the_profile_in_setup_and_in_training(checkout, monkeypatch):
    from recipe.settings import detect_hardware

    (tool := checkout / "tools" / "nvidia-smi").parent.mkdir()
    tool.touch(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HARDWARE", "")
    for gpus, profile in ((1, "gpu1"), (2, "gpu8")):
        tool.write_text(f"#!/bin/sh\ncase $1 in -L) {'echo a card; ' * gpus};; *) echo 580.65.06 ;; esac\n")
        shutil.rmtree(checkout / ".venv", ignore_errors=True)
        done = run_setup(checkout, HARDWARE="")
        assert done.returncode == 0, done.stderr
        assert f"profile {profile} (nvidia-smi lists" in done.stdout and "warning: the NVIDIA driver" not in done.stderr
        assert (checkout / ".venv" / "profile").read_text() == f"{profile}\n"
        assert detect_hardware() == profile
    for answer in ("exit 0", "echo a card; exit 9"):  # a machine without a GPU, and one whose driver does not answer
        tool.write_text(f"#!/bin/sh\n{answer}\n")
        assert detect_hardware() == "cpu"


def test_our_recipe_is_found_from_another_folder_although_dependencies_install_one_of_that_name(tmp_path):
    code = "import recipe; print(recipe.__file__)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).resolve() == ROOT / "recipe" / "__init__.py"


RAY = f"""#!{sys.executable}
import json, os, pathlib, socket, sys, time
names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
called = {{"arguments": sys.argv[1:], **{{name: os.environ[name] for name in names}}}}
pathlib.Path(f"called-{{os.getpid()}}.json").write_text(json.dumps(called))
if "--head" in sys.argv:
    port = next(argument for argument in sys.argv if argument.startswith("--port=")).split("=")[1]
    listening = socket.create_server(("127.0.0.1", int(port)))
time.sleep(60)
"""


@pytest.fixture
def node(checkout: Path) -> Path:
    """The checkout with a `.venv` of one command."""
    (programs := checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "profile").write_text("cpu\n")
    (checkout / ".venv" / "stamp").touch()
    (programs / "python").symlink_to(sys.executable)
    (programs / "ray").write_text(RAY)
    (programs / "ray").chmod(0o755)
    return checkout


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen]]:
    children = list[subprocess.Popen]()
    yield children
    for child in children:
        child.terminate()
        child.wait(60)


def start(node: Path, *arguments: str) -> subprocess.Popen:
    given = {name: value for name, value in os.environ.items() if name not in ("CLUSTER", "HARDWARE")}
    return subprocess.Popen(["bash", "run_cluster.sh", *arguments], cwd=node, env=given, stdout=subprocess.DEVNULL)


def calls(node: Path, number: int) -> list[dict[str, Any]]:
    """How Ray was called, once it was so often; the head's first."""
    end = time.monotonic() + 120
    while len(found := list(node.glob("called-*.json"))) < number or not all(map(os.path.getsize, found)):
        assert time.monotonic() < end, f"{len(found)} of {number} calls"
        time.sleep(0.05)
    return sorted((json.loads(path.read_text()) for path in found), key=lambda one: "--head" not in one["arguments"])


def test_the_first_is_the_head_and_the_others_join_it_with_its_token(node: Path, started: list) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    options = ["--node-ip-address=127.0.0.1", f"--port={port}"]
    started.append(head := start(node, *options))
    calls(node, 1)
    started.append(start(node, "--num-gpus", "4"))
    first, second = calls(node, 2)
    folder = node / "outputs" / "cluster"
    token = folder / "token"
    assert {"start", "--block", "--head", *options, "--num-cpus=8", "--num-gpus=1"} <= set(first["arguments"])
    assert {"start", "--block", f"--address=127.0.0.1:{port}", "--num-cpus=8"} <= set(second["arguments"])
    assert "--num-gpus=1" not in second["arguments"] and "--head" not in second["arguments"]
    for call in (first, second):
        assert (call["RAY_AUTH_MODE"], call["RAY_AUTH_TOKEN_PATH"]) == ("token", str(token))
    assert len(token.read_text()) == 64 and token.stat().st_mode & 0o077 == 0
    said = (folder / "environment").read_text()
    assert f"RAY_ADDRESS=127.0.0.1:{port}\n" in said and "RAY_AUTH_TOKEN_PATH=" in said
    head.send_signal(signal.SIGTERM)
    head.wait(60)
    assert [path.name for path in folder.iterdir()] == ["token"]
