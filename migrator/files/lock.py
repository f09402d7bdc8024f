"""Lock: one run writes to a folder at a time. The kernel releases it when a process dies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from migrator.errors import UsageError
from migrator.files.user_folders import key, state_folder


@contextmanager
def only_writer(folders: Iterable[Path]) -> Iterator[None]:
    """Prevent other runs from writing to some resolved folders.

    Raises:
        UsageError: another run writes to one of them, or the lock can't be created.
    """
    with ExitStack() as locks:
        for folder in sorted(set(folders)):
            locks.enter_context(_lock(folder))
        yield


def lock_file(folder: Path) -> Path:
    """A file that exists while a run writes to a folder."""
    return state_folder() / "locks" / key(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # not needed by a run that only reads

    file = lock_file(folder)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file, timeout=0)
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"{folder}: another tpu-migrate is writing there; nothing was written"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{file.parent}: cannot create a lock: {error.strerror or error}; nothing was "
            "written (TPU_MIGRATE_STATE names another folder for it)"
        ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # while it is held: the next run creates a new one
        lock.release()
