"""Places: the folders of the user's account in which this tool stores files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from migrator.files.homes import cache_home, state_home


def cache_folder() -> Path:
    """For files that can be created again."""
    return Path(cache_home())


def state_folder() -> Path:
    """Locks and journals of runs that write."""
    return Path(state_home())


def resolved(path: str | os.PathLike[str]) -> Path:
    """A path without links. One that leads to itself stays, to be reported when it is read."""
    return Path(os.path.realpath(path))


def digest(content: bytes) -> str:
    """A digest of a file's content."""
    return hashlib.sha256(content).hexdigest()


def key(path: Path) -> str:
    """A digest of a path, usable as a file name."""
    return digest(os.fsencode(path))
