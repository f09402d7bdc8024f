"""Patches a library when it is imported, which may be long after set-up."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Mend = Callable[[Any], None]

_waiting: dict[str, list[Mend]] = {}


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and patches it after its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        mends = _waiting.pop(fullname, [])
        spec = find_spec(fullname) if mends else None
        loader: Any = spec and spec.loader
        if mends:
            _waiting[fullname] = mends  # code may only be testing whether the module exists
        if loader is None:
            return None
        stock = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            stock(module)
            for mend in _waiting.pop(fullname, []):
                mend(module)

        loader.exec_module = exec_module
        return spec


_finder = _Finder()


def when_imported(name: str, mend: Mend) -> None:
    """Call ``mend`` with a module: now if it is imported, otherwise once it is."""
    if name in sys.modules:
        mend(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _waiting.setdefault(name, []).append(mend)
