"""Users' files are compiled from their text, like all that they import from their folder.

Python tells bytecode by the second and the size of a file: of one rewritten within a second it runs what was there.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

OURS = ("interaction", "rewards", "bfcl_env", "tau_env", "data_prep", "recipe")  # may stand beside users' files

_folders: set[str] = set()


class _FromText(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and name.partition(".")[0] not in OURS:
            file = os.path.realpath(spec.loader.path)
            installed = "-packages/" in file or file.startswith(os.path.dirname(os.__file__))
            if file.startswith(tuple(_folders)) and not installed:
                spec.loader = _FromText(name, spec.loader.path)
        return spec


def _take(folder: Path) -> None:
    _folders.add(os.path.join(os.path.realpath(folder), ""))
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)  # type: ignore[arg-type]


def load(name: str, path: Path) -> ModuleType:
    """Runs a file as a module of this name. Raises what its code raises."""
    _take(path.parent)
    spec: Any = spec_from_loader(name, _FromText(name, str(path)))
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there for the module that they stand in
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def imported(name: str) -> ModuleType:
    """Imports a module that a user has named. Raises what its code raises."""
    spec = PathFinder.find_spec(name.partition(".")[0])
    for place in [] if spec is None else spec.submodule_search_locations or [str(spec.origin)]:
        _take(Path(place).parent)
    return import_module(name)
