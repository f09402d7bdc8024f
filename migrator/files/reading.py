"""Reading: only regular files, and not more of one than source code can be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from migrator.files import witness

MOST = 2**28  # bytes; a notebook with images may be that large


def read_file(path: Path, most: int = MOST) -> bytes:
    """The content of a regular file.

    Reading a pipe would wait for a writer, and a device may be endless.

    Raises:
        OSError: it can't be read, isn't a regular file, or has more than `most` bytes.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            content = file.read(most + 1)
    except OSError:
        witness.saw_nothing(path)
        raise
    if len(content) > most:
        witness.looked_at(path)
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    witness.saw_file(path, status, content)
    return content


def read_or_none(path: Path) -> bytes | None:
    """The same; None if it can't be read."""
    try:
        return read_file(path)
    except OSError:
        return None
