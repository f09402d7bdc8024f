"""Journal: what a run that writes in place replaces, so that it can be undone.

One file for each root, in the user's state folder. It exists before the first source file changes.
The next run finds an interrupted run by it, and undoes that; for the last complete run it is
kept for `--undo`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from migrator.errors import UsageError
from migrator.files import overwriting
from migrator.files.places import digest, key, state_folder
from migrator.files.reading import read_or_none
from migrator.files.staging import is_temporary, stage, sync_folder, temporary_in

_TABLE = "run.json"


@dataclass(frozen=True)
class Entry:
    """A file that a run replaces, creates or removes."""

    path: Path  # with links resolved
    temporary: Path
    before: str | None  # the digest of its content; None: there was no file
    after: str | None  # None: it was removed
    ours: bool  # whether the old content was this tool's own output


@dataclass
class TakenBack:
    """What has happened to the files of an undone run."""

    restored: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)  # edited since; left alone
    failed: list[str] = field(default_factory=list)  # "path: reason"


@dataclass(frozen=True)
class Journal:
    """The journal of one root: a resolved folder."""

    root: Path

    @property
    def _folder(self) -> Path:
        return state_folder() / "runs" / key(self.root)

    @property
    def unfinished(self) -> Path:
        return self._folder / "unfinished.zip"

    @property
    def last(self) -> Path:
        return self._folder / "last.zip"

    def begin(
        self, entries: Sequence[Entry], contents: Iterable[bytes], folders: Sequence[Path]
    ) -> None:
        """Record what a run is about to do.

        Args:
            contents: of the existing files.
            folders: those that it creates, outer ones first.

        Raises:
            OSError: it cannot be written.
        """
        import zipfile  # not needed by a run that only reads

        self._folder.mkdir(parents=True, exist_ok=True)
        for stray in filter(is_temporary, os.listdir(self._folder)):  # left by a killed run
            (self._folder / stray).unlink(missing_ok=True)
        table = {
            "root": str(self.root),
            "entries": [
                {k: str(v) if isinstance(v, Path) else v for k, v in asdict(entry).items()}
                for entry in entries
            ],
            "folders": [str(folder) for folder in folders],
        }
        temporary = temporary_in(self._folder)
        try:
            with temporary.open("xb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                    archive.writestr(_TABLE, json.dumps(table))
                    for name, content in {digest(c): c for c in contents}.items():
                        archive.writestr(name, content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.unfinished)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(self._folder)

    def finish(self) -> None:
        """The run is complete: keep the information needed to undo it."""
        self.unfinished.replace(self.last)

    def take_back(self, file: Path) -> TakenBack:
        """Undo a run: files with its output get their previous content; others are left alone.

        It may be called again after any interruption.

        Raises:
            UsageError: the journal cannot be read.
        """
        entries, folders, contents = _read(file)
        done = TakenBack()
        for entry in entries:
            with suppress(OSError):
                entry.temporary.unlink(missing_ok=True)
        for entry in reversed(entries):
            try:
                _take_back(entry, contents, done)
            except OSError as error:
                done.failed.append(f"{entry.path}: {error.strerror or error}")
        for folder in reversed(folders):
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            with suppress(OSError):  # it has other contents by now
                folder.rmdir()
        for folder in {entry.path.parent for entry in entries}:
            sync_folder(folder)
        if not done.failed:
            if done.changed:  # their previous content exists nowhere else
                file.replace(self.last)
            else:
                file.unlink(missing_ok=True)
        return done


def _take_back(entry: Entry, contents: dict[str, bytes], done: TakenBack) -> None:
    now = read_or_none(entry.path)
    held = None if now is None else digest(now)
    if held == entry.before:
        return
    if held != entry.after:
        done.changed.append(entry.path)
        return
    if entry.before is None:
        entry.path.unlink()
        overwriting.forget(entry.path)
        done.removed.append(entry.path)
        return
    content = contents[entry.before]
    stage(entry.temporary, content, entry.path)
    entry.temporary.replace(entry.path)
    if entry.ours:
        overwriting.remember(entry.path, content)
    else:
        overwriting.forget(entry.path)
    done.restored.append(entry.path)


def _read(file: Path) -> tuple[list[Entry], list[Path], dict[str, bytes]]:
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            table = json.loads(archive.read(_TABLE))
            contents = {name: archive.read(name) for name in archive.namelist() if name != _TABLE}
        entries = [
            Entry(Path(e.pop("path")), Path(e.pop("temporary")), **e) for e in table["entries"]
        ]
        return entries, [Path(folder) for folder in table["folders"]], contents
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: cannot be read as the journal of a run: {error}") from None
