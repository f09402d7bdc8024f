"""What packages bring that are installed beside this one, by entry points."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")


@lru_cache(maxsize=1)
def _all(path: tuple[str, ...]) -> Any:
    """The entry points of all that is found on a path: read once, for all groups."""
    return entry_points()  # has `select` in each version of Python


def installed(group: str) -> Sequence[EntryPoint]:
    """The entry points of packages that are installed.

    What only lies in the working folder, or where PYTHONPATH leads, may be the project that is
    migrated, of which nothing is ever run.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    roots = [Path.cwd(), *map(Path, filter(None, given))]
    projects = {root.resolve() for root in roots if root.name not in _INSTALLED}
    return [
        point
        for point in _all(tuple(sys.path)).select(group=group)
        if point.dist is None or Path(str(point.dist.locate_file(""))).resolve() not in projects
    ]
