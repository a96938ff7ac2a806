"""Users' files run as they stand: compiled from their text, and so is what they import from beside them.

Python tells whether bytecode is that of a text by the second and the size, so a file rewritten within a second would
run as it was before. No bytecode of these files is read or written.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

INSTALLED = ("site-packages", "dist-packages")
OURS = ("interaction", "rewards", "bfcl_env", "tau_env", "data_prep", "recipe")
"""Packages that may stand beside users' files, and do not change while something runs."""

_folders: set[str] = set()


class _FromText(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    """Python's own finder of modules, but for those in users' folders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and name.partition(".")[0] not in OURS:
            file = os.path.realpath(spec.loader.path)
            if any(file.startswith(folder) for folder in _folders) and not any(part in file for part in INSTALLED):
                spec.loader = _FromText(name, spec.loader.path)
        return spec


def _take(folder: Path) -> None:
    _folders.add(os.path.join(os.path.realpath(folder), ""))
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)  # type: ignore[arg-type]


def load(name: str, path: Path) -> ModuleType:
    """Runs a file as a module of this name. Raises whatever its code raises."""
    _take(path.parent)
    spec = spec_from_file_location(name, path, loader=_FromText(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there for the module that they stand in
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def imported(name: str) -> ModuleType:
    """Imports a module that a user has named. Raises whatever its code raises."""
    top = name.partition(".")[0]
    if top not in OURS and (spec := PathFinder.find_spec(top)) is not None:
        for place in spec.submodule_search_locations or [spec.origin]:
            _take(Path(str(place)).parent)
    return import_module(name)
