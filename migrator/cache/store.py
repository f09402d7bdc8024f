"""Store: entries in a folder of the user's account, each of them a complete file or none at all.

Any number of runs may use it at once: an entry is replaced in one step, and one that can't be
read, or has unexpected contents, counts as missing (`entries`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from migrator.cache import entries
from migrator.files.staging import is_temporary, private, temporary_in

MOST = 2**28  # bytes of all entries: the least recently used ones are removed
_LARGEST = MOST // 4  # for one entry


def folder() -> Path:
    return Path(entries.folder())


def put(kind: str, of: str, value: object) -> None:
    """Store a value. If the folder isn't writable, nothing is stored."""
    content = entries.packed(of, value)
    if len(content) > _LARGEST:
        return
    file = Path(entries.file_of(kind, of))
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
