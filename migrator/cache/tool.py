"""The tool as it is: what a result depends on beside the files that it was made of.

Not a version: in a checkout the rules change without one. So the state of every file of the tool
counts, of each folder that packages are installed in, and of the packages that bring rules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from migrator import __version__
from migrator.files.places import digest
from migrator.files.states import State, state_of
from migrator.plugins import installed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_RULES = "migrator.rules"
GROUPS = ("tpu_migrate.rules", "tpu_migrate.targets", "tpu_migrate.frameworks")


def fingerprint() -> str:
    """What stands for the tool, its Python, and all that is installed beside it."""
    parts = [__version__, sys.version, sys.platform, os.path.realpath(sys.executable), *states()]
    return digest(repr(parts).encode())


def states() -> Iterator[tuple[str, State]]:
    """The state of each file of the tool, and of the folders that packages are installed in."""
    for folder in sys.path:
        if os.path.realpath(folder) != os.getcwd():
            yield folder, state_of(folder)
    for package in ("migrator", _RULES, *sorted(_packages_with_plugins())):
        yield from _states(package)


def plugins() -> list[EntryPoint]:
    """What other packages bring."""
    return [point for group in GROUPS for point in installed(group)]


def _packages_with_plugins() -> set[str]:
    return {point.value.partition(":")[0].partition(".")[0] for point in plugins()}


def _states(package: str) -> Iterator[tuple[str, State]]:
    spec = find_spec(package)
    if spec is None:
        return
    places = list(spec.submodule_search_locations or ())
    if not places and spec.origin:
        yield spec.origin, state_of(spec.origin)
    for place in places:
        for at, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in files:
                yield os.path.join(at, name), state_of(os.path.join(at, name))
