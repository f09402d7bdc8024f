"""Store: entries in a folder of the user's account, each a file that is there whole or not at all.

Any number of runs may use it at a time: an entry is replaced in one step, and one that cannot be
read, or holds something else than was written, is as good as none.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from migrator.files.places import cache_folder
from migrator.files.staging import is_temporary, temporary_in

MOST = 2**28  # bytes of all entries: those go that were not used for the longest time
_LARGEST = MOST // 4  # of one entry
_CHECK = hashlib.sha256().digest_size


def folder() -> Path:
    return cache_folder() / "results"


def get(key: str) -> bytes | None:
    """What was kept under a key."""
    file = folder() / key
    try:
        content = file.read_bytes()
        os.utime(file)  # it was used now
    except OSError:
        return None
    check, entry = content[:_CHECK], content[_CHECK:]
    return entry if hashlib.sha256(entry).digest() == check else None


def put(key: str, entry: bytes) -> None:
    """Keep something. A folder that cannot be written to only means that nothing is kept."""
    if len(entry) > _LARGEST:
        return
    at = folder()
    with suppress(OSError):
        at.mkdir(parents=True, exist_ok=True)
        temporary = temporary_in(at)
        try:
            temporary.write_bytes(hashlib.sha256(entry).digest() + entry)
            temporary.replace(at / key)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _make_room(at)


def _make_room(at: Path) -> None:
    """Let go of what was used least recently; of runs that were killed, too."""
    entries = []
    with os.scandir(at) as found:
        for entry in found:
            with suppress(OSError):  # another run has just let go of it
                status = entry.stat()
                entries.append((status.st_mtime, status.st_size, entry.path, entry.name))
    entries.sort(reverse=True)
    total = 0
    newest = entries[0][0] if entries else 0
    for used, size, path, name in entries:
        total += size
        is_left_behind = is_temporary(name) and used < newest - 3600
        if total > MOST or is_left_behind:
            Path(path).unlink(missing_ok=True)
