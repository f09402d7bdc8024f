"""Frameworks: each folder here is one; installed packages bring others.

An entry point of the group `tpu_migrate.frameworks` names a module with a `FRAMEWORK`. Its rules
and its targets come as those of any package do, and say `framework="…"`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from migrator.errors import UsageError
from migrator.plugins import installed, load

if TYPE_CHECKING:
    from migrator.frameworks.framework import Framework

GROUP = "tpu_migrate.frameworks"  # of entry points: modules with a framework


@cache
def frameworks() -> dict[str, Framework]:
    """Every framework by name. Raises UsageError for an installed package that has none."""
    from migrator.frameworks.framework import Framework

    found = {name: find_framework(name) for name in _own_frameworks()}
    for point in installed(GROUP):
        if point.name in found:
            raise UsageError(f"framework {point.name} of {point.value}: the name is taken")
        found[point.name] = load(point, Framework)
    return found


@cache
def find_framework(name: str) -> Framework:
    """The framework of that name. Raises UsageError."""
    if name in _own_frameworks():
        module = importlib.import_module(f"{__name__}.{name}.framework")
        own: Framework = module.FRAMEWORK
        return own
    if name not in frameworks():
        raise UsageError(f"unknown framework {name!r} (known: {', '.join(frameworks())})")
    return frameworks()[name]


def imported_in(source: bytes) -> Framework:
    """The framework that a program is of, by its imports: first that which other code is read as.

    That is also the answer for a program that imports none of them itself.
    """
    known = sorted(frameworks().values(), key=lambda framework: not framework.normalised)
    return next((each for each in known if each.is_imported_in(source)), known[0])


def _own_frameworks() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(__path__) if info.ispkg]
