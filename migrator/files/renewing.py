"""Renewing a migrated copy: what an earlier run wrote there is replaced, other files stay.

A record in the user's state folder has the digests of what a run wrote to a folder. What is there
with another digest is the user's work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from migrator.diagnostics import first_of
from migrator.errors import UsageError
from migrator.files import staging
from migrator.files.user_folders import digest, key, state_folder

_NAMED = 3  # files in a message


@dataclass(frozen=True)
class RenewalRecord:
    """What runs wrote to a resolved folder."""

    folder: Path
    written: dict[str, list[str]]  # the digests that a file may have, by its path there

    @property
    def file(self) -> Path:
        return state_folder() / "copies" / f"{key(self.folder)}.json"

    def edited(self) -> list[Path]:
        """What has another content by now; files that were removed have none."""
        return [
            Path(name)
            for name, known in self.written.items()
            if os.path.lexists(self.folder / name) and _digest(self.folder / name) not in known
        ]

    def save(self) -> None:
        """Raises OSError."""
        staging.write(self.file, json.dumps(self.written).encode())


def record_of(folder: Path) -> RenewalRecord | None:
    """What earlier runs wrote to a resolved folder; None if none did."""
    record = RenewalRecord(folder, {})
    try:
        known = json.loads(record.file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return RenewalRecord(folder, {str(name): [*map(str, known[name])] for name in known})


def note(folder: Path) -> None:
    """Record all that is in a resolved folder as written by this run. Raises OSError."""
    RenewalRecord(folder, {name: [_digest(folder / name)] for name in _files(folder)}).save()


def check_renewable(folder: Path, output: Path) -> None:
    """Raise UsageError if a folder, which is not empty, holds edited files, or none of a run's."""
    record = record_of(folder)
    if record is None:
        raise UsageError(f"-o {output}: is not an empty folder")
    if edited := record.edited():
        named = first_of([*map(str, edited)], _NAMED)
        raise UsageError(
            f"-o {output}: edited since the last run: {named}; move them away, or choose another "
            "folder"
        )


def renew(folder: Path, fresh: Path) -> None:
    """Put a new copy in place of an earlier one, file by file.

    Raises:
        OSError: the record can't be written; nothing was.
        UsageError: a file of the user's would be overwritten, and nothing was written; or one can't
            be replaced, and the next run goes on.
    """
    old = record_of(folder) or RenewalRecord(folder, {})
    new = {name: _digest(fresh / name) for name in _files(fresh)}
    for name, content in new.items():
        at = folder / name
        if name not in old.written and os.path.lexists(at) and _digest(at) != content:
            raise UsageError(f"{at}: not from this tool, and would be overwritten; move it away")
    both = {name: [*known] for name, known in old.written.items()}
    for name, content in new.items():
        both.setdefault(name, []).append(content)
    RenewalRecord(
        folder, both
    ).save()  # so that a run that is killed meanwhile leaves nothing unknown
    try:
        _replace(folder, fresh, old.written.keys() - new.keys(), new)
        RenewalRecord(folder, {name: [content] for name, content in new.items()}).save()
    except OSError as error:
        said = error.strerror or str(error)
        raise UsageError(f"{folder}: {said}; the copy is incomplete: run this again") from None


def _replace(folder: Path, fresh: Path, gone: Iterable[str], new: Iterable[str]) -> None:
    for name in sorted(gone):
        (folder / name).unlink(missing_ok=True)
        _remove_empty((folder / name).parent, folder)
    for path in fresh.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            (folder / path.relative_to(fresh)).mkdir(parents=True, exist_ok=True)
    for name in new:
        at = folder / name
        if at.is_dir() and not at.is_symlink():
            at.rmdir()  # an error, if it is not empty
        (fresh / name).replace(at)


def _remove_empty(folder: Path, top: Path) -> None:
    with suppress(OSError):  # not empty
        while folder != top:
            folder.rmdir()
            folder = folder.parent


def _files(folder: Path) -> list[str]:
    """The files and links below a folder, as paths from there."""
    every = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in every)


def _digest(path: Path) -> str:
    """Of a file's content, or of where a link leads; "" for what is neither."""
    if path.is_symlink():
        return digest(os.fsencode(path.readlink()))
    if not path.is_file():
        return ""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
