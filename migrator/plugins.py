"""What packages bring that are installed beside this one, by entry points."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from migrator.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = b"tpu_migrate."  # what the names of our groups begin with
Plugin = TypeVar("Plugin")


def installed(group: str) -> Sequence[EntryPoint]:
    """The entry points of packages that are installed for this interpreter.

    What lies elsewhere, as where PYTHONPATH leads, may be the project that is migrated, of which
    nothing is ever run, whatever its folders are called.
    """
    return [
        point
        for point in _all(tuple(sys.path)).select(group=group)
        if point.dist is not None
        and os.path.realpath(str(point.dist.locate_file(""))) in own_folders()
    ]


def own_folders() -> Set[str]:
    """The folders, without links, into which packages are installed for this interpreter."""
    import site
    import sysconfig

    found = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return set(map(os.path.realpath, found))


def imported(point: EntryPoint) -> Any:
    """What an entry point names; a module of the same name in a project does not shadow it."""
    given = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    projects = set(map(os.path.realpath, given)) - own_folders()  # "": the working folder
    before = sys.path[:]
    sys.path[:] = [folder for folder in before if os.path.realpath(folder) not in projects]
    try:
        return point.load()
    finally:
        sys.path[:] = before


def load(point: EntryPoint, kind: type[Plugin]) -> Plugin:
    """The `TARGET` of a module that a package names for a Target, and so for each kind.

    Raises UsageError where the module fails, or has none of the name of the entry point.
    """
    word = kind.__name__
    where = f"{word.lower()} {point.name} of {point.value}"
    try:
        module = imported(point)
    except Exception as error:
        raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
    found = getattr(module, word.upper(), None)
    if not isinstance(found, kind) or getattr(found, "name", None) != point.name:
        raise UsageError(f"{where}: there is no {word.upper()} of that name")
    return found


class _NoEntryPoints:
    def select(self, *, group: str) -> Sequence[EntryPoint]:
        return ()


@lru_cache(maxsize=1)
def _all(path: tuple[str, ...]) -> Any:
    """The entry points of all that is found on a path, if any of them is of ours.

    To ask the standard library takes as long as to start: most installations go without.
    """
    if not any(map(_may_have_ours, path)):
        return _NoEntryPoints()
    from importlib.metadata import entry_points

    return entry_points()  # has `select` in each version of Python


def _may_have_ours(folder: str) -> bool:
    if os.path.isfile(folder):
        return True  # an archive: the standard library looks into it
    return any(map(_has_ours, entry_point_files(folder or os.curdir)))


def _has_ours(file: str) -> bool:
    with suppress(OSError):
        return _OURS in Path(file).read_bytes()
    return False


def entry_point_files(folder: str) -> Iterator[str]:
    """Where what is installed in a folder has its entry points, if it has some."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.lower().endswith((".dist-info", ".egg-info", ".egg")):
            inner = "EGG-INFO" if name.lower().endswith(".egg") else ""
            yield str(Path(folder, name, inner, "entry_points.txt"))
