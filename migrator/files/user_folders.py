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


def meant_instead(path: Path) -> str:
    """A question for a path that does not exist, if one beside it has nearly its name; else ""."""
    from difflib import get_close_matches

    try:
        beside = [each.name for each in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, beside, 1, 0.75)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def digest(content: bytes) -> str:
    """A digest of a file's content."""
    return hashlib.sha256(content).hexdigest()


def key(path: Path) -> str:
    """A digest of a path, usable as a file name."""
    return digest(os.fsencode(path))
