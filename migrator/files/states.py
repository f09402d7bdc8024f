"""The state of a file: what tells that it may have changed. Imports next to nothing."""

from __future__ import annotations

import os

# Of a file or a folder: size, time of the content, time of any change, number. None: not there.
State = tuple[int, int, int, int] | None


def state_of(path: str | os.PathLike[str]) -> State:
    try:
        return of_status(os.stat(path))
    except (OSError, ValueError):
        return None


def of_status(status: os.stat_result) -> State:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
