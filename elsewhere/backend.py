"""Builds the wheel of the environments: their packages are copied beneath one that nobody else has, then setuptools.

Everything happens in a folder that is removed afterwards. The source distribution is an ordinary project of setuptools.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "bfcl_grpo_environments"
PACKAGES = ("interaction", "rewards", "bfcl_env", "tau_env")
LEFT_OUT = ("interaction/agent_loop.py", "interaction/episode_output.py")
"""What imports verl or torch: the recipe's own loop."""
KINDS = (".py", ".json", ".yaml", ".typed")
OURS = """build-backend = "backend"
backend-path = ["."]"""


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """As PEP 517 has it; returns the file's name."""
    with project(wheel_directory) as folder:
        return build_meta.build_wheel(folder, config_settings)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """As PEP 517 has it; returns the file's name."""
    with project(sdist_directory) as folder:
        return build_meta.build_sdist(folder, config_settings)


@contextmanager
def project(folder: str) -> Iterator[str]:
    """Stands in the project that is to be built, for setuptools; gives back `folder` as a whole path.

    Raises:
        FileNotFoundError: this folder does not lie beside the packages.
    """
    before, target = Path.cwd(), os.path.abspath(folder)
    with TemporaryDirectory() as made:
        lay_out(Path(made))
        os.chdir(made)
        try:
            yield target
        finally:
            os.chdir(before)


def lay_out(folder: Path) -> None:
    """Writes the project into an empty folder."""
    text = (HERE / "pyproject.toml").read_text("utf-8")
    (folder / "pyproject.toml").write_text(text.replace(OURS, 'build-backend = "setuptools.build_meta"'), "utf-8")
    for path in (HERE / "README.md", ROOT / "LICENSE", ROOT / "NOTICE"):
        shutil.copy(path, folder)
    found = {Path("__init__.py"): HERE / "top.py"}
    for source in [*(ROOT / name for name in PACKAGES), HERE / "adapters"]:
        if not source.is_dir():
            raise FileNotFoundError(f"{source} is not there: the wheel is built in a checkout, where elsewhere/ stands")
        files = (path for path in sorted(source.rglob("*")) if path.suffix in KINDS and path.is_file())
        found |= {path.relative_to(source.parent): path for path in files}
    found = {path: source for path, source in found.items() if path.as_posix() not in LEFT_OUT}
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found if path.suffix == ".py"]
    for path, source in found.items():
        target = folder / NAME / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_text("utf-8")
        target.write_text(moved(content, names) if path.suffix == ".py" else content, "utf-8")
    (folder / NAME / "py.typed").touch()


def moved(source: str, modules: Collection[str]) -> str:
    """The text of a module with `NAME.` before every module of `modules` that it names.

    It names them in absolute imports, in texts that are a module's name and nothing else (as tables of modules have
    them), and after `-m` in commands. A text of one word without an underscore, such as `rewards`, may be a word.

    Raises:
        ValueError: an import binds the first part of a dotted name, which would be another one then.
    """
    packages = "|".join({name.partition(".")[0] for name in modules})
    known = "|".join(sorted(map(re.escape, modules), reverse=True))
    whole = "|".join(re.escape(name) for name in modules if re.search(r"[._]", name))
    if wrong := re.search(rf"(?m)^\s*import .*\b(?:{packages})\b", source):
        raise ValueError(f"`{wrong[0].strip()}` cannot be moved; write `from ... import`")
    source = re.sub(rf"(?m)^(\s*from\s+)(?=(?:{packages})[. ])", rf"\1{NAME}.", source)
    source = re.sub(rf"""(["'])({whole})\1""", rf"\1{NAME}.\2\1", source)
    return re.sub(rf"(-m )(?=(?:{known})(?![\w.]*\w))", rf"\1{NAME}.", source)
