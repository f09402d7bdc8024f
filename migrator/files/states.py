"""The state of a file: shows whether it may have changed."""

from __future__ import annotations

import os
from collections.abc import Callable

Answer = tuple[str, str, object]  # the question, the path it is about, the answer

# Of a file or a folder: size, modification time, change time, inode. None: it doesn't exist.
State = tuple[int, int, int, int] | None


def state_of(path: str | os.PathLike[str]) -> State:
    try:
        return of_status(os.stat(path))
    except (OSError, ValueError):
        return None


def of_status(status: os.stat_result) -> State:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def modules(folder: str) -> list[str]:
    """The contents of a package's folder, except for what Python adds at import."""
    try:
        return sorted(name for name in os.listdir(folder) if name != "__pycache__")
    except OSError:
        return []


# Other queries about a path, whose answers can be compared with earlier ones.
QUESTIONS: dict[str, Callable[[str], object]] = {
    "exists": os.path.exists,
    "isdir": os.path.isdir,
    "isfile": os.path.isfile,
    "lexists": os.path.lexists,
    "modules": modules,
    "realpath": os.path.realpath,
    "state": state_of,
}
