"""Entries: what the cache holds, read back before the tool is loaded. Imports next to nothing."""

from __future__ import annotations

import marshal
import os
from zlib import crc32

from migrator import TYPE_CHECKING
from migrator.files.homes import cache_home

if TYPE_CHECKING:
    from typing import Any

HOOK, TOLD = "hook", "told"  # kinds: what an answer to a hook rests on; what a run has said


def folder() -> str:
    return os.path.join(cache_home(), "results")


def file_of(kind: str, of: str) -> str:
    """The file of what is kept of one kind.

    Args:
        of: all that it is of. Another one may have the same checksum, so it is kept, too.
    """
    return os.path.join(folder(), f"{kind}-{crc32(of.encode('utf-8', 'surrogateescape')):08x}")


def packed(of: str, value: Any) -> bytes:
    """The content of such a file: text, numbers and what holds them. Raises ValueError."""
    content = marshal.dumps((of, value))
    return crc32(content).to_bytes(4, "big") + content


def load(kind: str, of: str) -> Any:
    """What was kept; None where nothing was, or something else."""
    file = file_of(kind, of)
    try:
        with open(file, "rb") as opened:
            check, content = opened.read(4), opened.read()
        os.utime(file)  # it was used now
        if crc32(content).to_bytes(4, "big") != check:
            return None
        kept_of, value = marshal.loads(content)
    except (OSError, EOFError, TypeError, ValueError):
        return None
    return value if kept_of == of else None
