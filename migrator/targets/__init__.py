"""Targets: each folder here is one; installed packages add others (docs/adding-a-target.md)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from migrator.distribution import RUNTIME
from migrator.errors import UsageError
from migrator.plugins import installed, load

from .api_map import MIRRORED, Devices, Snippet, TargetApi, filled
from .environment import Damage, Environment
from .host import Host, Slow, StandIn
from .markers import Markers
from .target import Delivered, Target, in_one_process, own_runtime, portable, with_ranks

__all__ = [
    "DEFAULT",
    "MIRRORED",
    "RUNTIME",
    "Damage",
    "Delivered",
    "Devices",
    "Environment",
    "Host",
    "Markers",
    "Slow",
    "Snippet",
    "StandIn",
    "Target",
    "TargetApi",
    "all_markers",
    "filled",
    "find_target",
    "in_one_process",
    "names",
    "own_runtime",
    "portable",
    "rule_modules",
    "targets",
    "with_ranks",
]  # fmt: skip

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DEFAULT = "torchax"  # the default target
GROUP = "tpu_migrate.targets"  # entry points: packages that are a target


@cache
def names() -> tuple[str, ...]:
    """The names of all targets; none is loaded for this."""
    return tuple(sorted({*_own_targets(), *(point.name for point in installed(GROUP))}))


@cache
def targets() -> dict[str, Target]:
    """All targets by name.

    Raises UsageError for an installed package that isn't a target.
    """
    found = {name: importlib.import_module(f"{__name__}.{name}").TARGET for name in _own_targets()}
    for point in installed(GROUP):
        if point.name in found:
            raise UsageError(f"target {point.name} of {point.value}: the name is taken")
        found[point.name] = _loaded(point)
    return dict(sorted(found.items()))


def find_target(name: str) -> Target:
    """The target with that name. Raises UsageError."""
    if name not in names():
        raise UsageError(f"unknown target {name!r} (known: {', '.join(names())})")
    return targets()[name]


def rule_modules() -> list[tuple[ModuleType, EntryPoint | None]]:
    """The `rules` modules of all targets, with the installed package that contains them."""
    packages: dict[str, EntryPoint | None] = {f"{__name__}.{name}": None for name in _own_targets()}
    packages |= {point.module: point for point in installed(GROUP)}
    found = {f"{package}.rules": point for package, point in packages.items()}
    return [(importlib.import_module(n), p) for n, p in found.items() if find_spec(n) is not None]


def all_markers() -> list[Markers]:
    """The markers of all targets."""
    return [target.markers for target in targets().values()]


def _own_targets() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(__path__) if info.ispkg]


def _loaded(point: EntryPoint) -> Target:
    target = load(point, Target)
    where = f"target {point.name} of {point.value}"
    if target.runtime is not None and not (target.runtime / RUNTIME / "__init__.py").is_file():
        raise UsageError(f"{where}: its runtime is missing: no {target.runtime / RUNTIME}")
    if not any(pin.startswith(f"{target.framework}==") for pin in target.environment.pins):
        raise UsageError(f"{where}: its pins have no exact {target.framework}")
    return target
