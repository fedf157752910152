"""Submodules of a package without what its `__init__.py` imports.

`import uvicorn` imports its command line with click and multiprocessing, which takes as long as the
server itself. The package file is executed when somebody asks the package for a name.

Runs in: API process, at start-up. Owns: nothing. Knows nothing of: which package it is.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


def defer_package_file(name: str) -> None:
    """Makes `import name.submodule` leave the package's own file alone until it is needed.

    No effect if the package was imported before; one that is not installed fails where it is
    imported.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is not None and spec.loader is not None:
        package = importlib.util.module_from_spec(spec)
        vars(package)["__getattr__"] = _Executor(package)
        sys.modules[name] = package


class _Executor:
    """`__getattr__` of a module: executes its file at the first name that is not there."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def __call__(self, attribute: str) -> Any:
        package = self._package
        if attribute.startswith("__"):  # what the import system asks of every module
            raise AttributeError(f"module {package.__name__!r} has no attribute {attribute!r}")
        del vars(package)["__getattr__"]
        assert package.__spec__ is not None
        assert package.__spec__.loader is not None
        package.__spec__.loader.exec_module(package)
        return getattr(package, attribute)
