"""Users' files are compiled from their text, like all that they import and that is not installed.

Python tells bytecode by the second and the size of a file: of one rewritten within a second it runs what was there.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_STANDARD, _ROOT = os.path.join(os.path.dirname(os.__file__), ""), Path(__file__).parents[1]
_OURS = [os.path.join(_ROOT, name, "") for name in "interaction rewards bfcl_env tau_env data_prep recipe".split()]


class FromText(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        others = (item for item in sys.meta_path if item is not _Finder and hasattr(item, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            file = spec.loader.path
            if "-packages" + os.sep not in file and not file.startswith((_STANDARD, *_OURS)):
                spec.loader = FromText(name, file)
        return spec


def _take() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


def load(name: str, path: Path) -> ModuleType:
    """Runs a file as a module of this name. Raises what its code raises."""
    _take()
    spec: Any = spec_from_loader(name, FromText(name, str(path)))
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there for the module that they stand in
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def imported(name: str) -> ModuleType:
    """Imports a module that a user has named. Raises what its code raises."""
    _take()
    return import_module(name)
