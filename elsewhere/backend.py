"""Builds the wheel of the environments: their packages are copied beneath one that nobody else has, then setuptools.

Everything happens in a folder that is removed afterwards. The source distribution is an ordinary project of setuptools.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moved import moved
from setuptools import build_meta

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "bfcl_grpo_environments"
PACKAGES = ("interaction", "rewards", "bfcl_env", "tau_env")
ADAPTERS = HERE / "adapters"
LEFT_OUT = ("interaction/agent_loop.py", "interaction/episode_output.py")
"""What imports verl or torch: the recipe's own loop."""
KINDS = (".py", ".json", ".yaml", ".typed")
OURS = """build-backend = "backend"
backend-path = ["."]"""


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """As PEP 517 has it; returns the file's name."""
    with project(os.path.abspath(wheel_directory)) as folder:
        return build_meta.build_wheel(folder, config_settings)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """As PEP 517 has it; returns the file's name."""
    with project(os.path.abspath(sdist_directory)) as folder:
        return build_meta.build_sdist(folder, config_settings)


@contextmanager
def project(folder: str) -> Iterator[str]:
    """Stands in the project that is to be built, for setuptools; gives back `folder`.

    Raises:
        FileNotFoundError: this folder does not lie beside the packages.
    """
    before = Path.cwd()
    with TemporaryDirectory() as made:
        lay_out(Path(made))
        os.chdir(made)
        try:
            yield folder
        finally:
            os.chdir(before)


def lay_out(folder: Path) -> None:
    """Writes the project into an empty folder."""
    text = (HERE / "pyproject.toml").read_text("utf-8")
    (folder / "pyproject.toml").write_text(text.replace(OURS, 'build-backend = "setuptools.build_meta"'), "utf-8")
    for path in (HERE / "README.md", ROOT / "LICENSE", ROOT / "NOTICE"):
        shutil.copy(path, folder)
    sources = [*(ROOT / name for name in PACKAGES), ADAPTERS]
    found = {path.relative_to(source.parent): path for source in sources for path in files(source)}
    modules = frozenset(module_of(path) for path in found if path.suffix == ".py")
    for path, source in found.items():
        target = folder / NAME / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_text("utf-8")
        target.write_text(moved(content, NAME, modules) if path.suffix == ".py" else content, "utf-8")
    (folder / NAME / "__init__.py").write_text(moved((HERE / "top.py").read_text("utf-8"), NAME, modules), "utf-8")
    (folder / NAME / "py.typed").touch()


def files(package: Path) -> list[Path]:
    """What of a package goes into the wheel.

    Raises:
        FileNotFoundError: it is not there.
    """
    if not package.is_dir():
        raise FileNotFoundError(f"{package} is not there: the wheel is built in a checkout, where elsewhere/ stands")
    kept = (path for path in sorted(package.rglob("*")) if path.suffix in KINDS and path.is_file())
    return [path for path in kept if path.relative_to(package.parent).as_posix() not in LEFT_OUT]


def module_of(path: Path) -> str:
    """The name under which a file is imported today."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
