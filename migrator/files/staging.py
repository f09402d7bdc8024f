"""Staging: a new content lies complete beside its file before it takes the file's place."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from migrator.files.user_folders import resolved


def temporary_in(folder: Path) -> Path:
    """A name for a file or folder that isn't complete yet."""
    return folder / f".tpu-migrate-{os.urandom(8).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file was left behind by a killed run."""
    return name.startswith(".tpu-migrate-") and name.endswith(".tmp")


def stage(temporary: Path, content: bytes, real: Path) -> list[str]:
    """Write a replacement for `real`, with its permissions, owner and attributes.

    Returns what could not be preserved. Raises OSError; nothing is left behind then.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            return _like(real, temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step; a crash leaves the old content or the new one, never a part.

    Links stay links: their target is replaced. Raises OSError.
    """
    real = resolved(path)
    real.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_in(real.parent)
    stage(temporary, content, real)
    try:
        temporary.replace(real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def private(path: Path) -> BinaryIO:
    """A new file that only the user may read, open for writing. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, if the system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with suppress(OSError):  # some file systems don't support it
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _like(real: Path, temporary: Path) -> list[str]:
    """Copy the replaced file's metadata; returns what could not be preserved."""
    try:
        wanted = real.stat()
    except FileNotFoundError:
        return []
    lost = []
    made = temporary.stat()
    if hasattr(os, "chown") and (made.st_uid, made.st_gid) != (wanted.st_uid, wanted.st_gid):
        try:
            os.chown(temporary, wanted.st_uid, wanted.st_gid)
        except OSError:
            lost.append("its owner or group is not kept")
    temporary.chmod(stat.S_IMODE(wanted.st_mode))  # after chown, which clears bits
    if hasattr(os, "listxattr"):
        with suppress(OSError):  # a file system without any
            for name in os.listxattr(real):
                try:
                    os.setxattr(temporary, name, os.getxattr(real, name))
                except OSError:
                    lost.append(f"its attribute {name} is not kept")
    if wanted.st_nlink > 1:
        lost.append("its other hard links keep the old content")
    return lost
