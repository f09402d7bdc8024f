"""The state of a file: shows whether it may have changed. Imports almost nothing."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing's own takes as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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


def changed(states: Mapping[str, State]) -> list[str]:
    """The files whose state has changed. Optimized for ten thousand files per call."""
    found, stat = [], os.stat
    for path, state in states.items():
        try:
            now = stat(path)
        except (OSError, ValueError):
            if state is not None:
                found.append(path)
            continue
        if state is None or (
            state[2] != now.st_ctime_ns or state[1] != now.st_mtime_ns
            or state[3] != now.st_ino or state[0] != now.st_size
        ):  # fmt: skip
            found.append(path)
    return found


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


def still_true(answers: Iterable[Answer]) -> bool:
    return all(QUESTIONS[question](path) == answer for question, path, answer in answers)
