"""Entries: the cache's contents, readable before the tool is loaded. Imports almost nothing."""

from __future__ import annotations

import marshal
import os
from zlib import crc32

from migrator.files.homes import cache_home

TYPE_CHECKING = False  # typing's own takes as long to import as Python to start
if TYPE_CHECKING:
    from typing import Any

# Kinds: the premises of a hook's answer; a run's output; the results of its groups of files.
HOOK, TOLD, GROUPS = "hook", "told", "groups"


def folder() -> str:
    return os.path.join(cache_home(), "results")


def file_of(kind: str, of: str) -> str:
    """The file of an entry of one kind.

    Args:
        of: the entry's key. Another one may have the same checksum, so it is stored, too.
    """
    return os.path.join(folder(), f"{kind}-{crc32(of.encode('utf-8', 'surrogateescape')):08x}")


def packed(of: str, value: Any) -> bytes:
    """The content of such a file: text, numbers and containers of them. Raises ValueError."""
    content = marshal.dumps((of, value))
    return crc32(content).to_bytes(4, "big") + content


def load(kind: str, of: str) -> Any:
    """The stored value; None if there is none, or for another key."""
    file = file_of(kind, of)
    try:
        with open(file, "rb") as opened:
            check, content = opened.read(4), opened.read()
        os.utime(file)  # mark as used now
        if crc32(content).to_bytes(4, "big") != check:
            return None
        kept_of, value = marshal.loads(content)
    except (OSError, EOFError, TypeError, ValueError):
        return None
    return value if kept_of == of else None
