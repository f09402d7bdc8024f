"""The state of a file: what tells that it may have changed. Imports next to nothing."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # that of typing, which takes as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Answer = tuple[str, str, object]  # the question, the path it is about, the answer

# Of a file or a folder: size, time of the content, time of any change, number. None: not there.
State = tuple[int, int, int, int] | None


def state_of(path: str | os.PathLike[str]) -> State:
    try:
        return of_status(os.stat(path))
    except (OSError, ValueError):
        return None


def of_status(status: os.stat_result) -> State:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def changed(states: Mapping[str, State]) -> list[str]:
    """What is not in the state that it was in. Written for ten thousand files, each time."""
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
    """What is in a folder of a package, but for what Python adds when it is imported."""
    try:
        return sorted(name for name in os.listdir(folder) if name != "__pycache__")
    except OSError:
        return []


# What else may be asked of a path, so that the answer can be compared with an earlier one.
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
