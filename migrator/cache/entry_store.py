"""Store: entries in a folder of the user's account, each of them a complete file or none at all.

Any number of runs may use it at once: an entry is replaced in one step, and one that can't be
read, or has unexpected contents, counts as missing.
"""

from __future__ import annotations

import marshal
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from migrator.files.homes import cache_home
from migrator.files.staging import is_temporary, private, temporary_in

MOST = 2**28  # bytes of all entries: the least recently used ones are removed
_LARGEST = MOST // 4  # for one entry


def folder() -> Path:
    return Path(cache_home(), "results")


def file_of(kind: str, of: str) -> Path:
    """The file of an entry of one kind.

    Args:
        of: the entry's key. Another one may have the same checksum, so it is stored, too.
    """
    return folder() / f"{kind}-{crc32(of.encode('utf-8', 'surrogateescape')):08x}"


def load_entry(kind: str, of: str) -> Any:
    """The stored value; None if there is none, or for another key."""
    file = file_of(kind, of)
    try:
        with file.open("rb") as opened:
            check, content = opened.read(4), opened.read()
        os.utime(file)  # mark as used now
        if crc32(content).to_bytes(4, "big") != check:
            return None
        kept_of, value = marshal.loads(content)
    except (OSError, EOFError, TypeError, ValueError):
        return None
    return value if kept_of == of else None


def store_entry(kind: str, of: str, value: Any) -> None:
    """Store text, numbers or containers of them. If the folder isn't writable, nothing is stored.

    Raises ValueError for other objects.
    """
    packed = marshal.dumps((of, value))
    content = crc32(packed).to_bytes(4, "big") + packed
    if len(content) > _LARGEST:
        return
    file = file_of(kind, of)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_in(file.parent)
        try:
            with private(temporary) as opened:  # it quotes source, which may be private
                opened.write(content)
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _make_room(file.parent)


def _make_room(at: Path) -> None:
    """Remove the least recently used entries, and files left by killed runs."""
    found = []
    with os.scandir(at) as listed:
        for entry in listed:
            with suppress(OSError):  # another run has just removed it
                status = entry.stat()
                found.append((status.st_mtime, status.st_size, entry.path, entry.name))
    found.sort(reverse=True)
    total = 0
    newest = found[0][0] if found else 0
    for used, size, path, name in found:
        total += size
        is_left_behind = is_temporary(name) and used < newest - 3600
        if total > MOST or is_left_behind:
            Path(path).unlink(missing_ok=True)
