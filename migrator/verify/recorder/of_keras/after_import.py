"""Does something behind the import of a module, once, before anybody can use it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then = name, then
        self.looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name or self.looking:
            return None
        self.looking = True  # who asks for a spec need not import it
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def execute(module: ModuleType) -> None:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                run(module)
                self.then(module)

            loader: Any = spec.loader
            loader.exec_module = execute
        return spec


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call `then` with a module when it has been imported: at once, where it already is."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
