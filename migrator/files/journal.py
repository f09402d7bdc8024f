"""Journal: what a run that writes in place replaces, so that it can be undone.

One file for each root, in the user's state folder. It exists before the first source file changes.
The next run finds an interrupted run by it, and undoes that; for the last complete run it is
kept for `--undo`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from migrator.errors import UsageError
from migrator.files import overwriting
from migrator.files.reading import read_or_none
from migrator.files.staging import is_temporary, private, stage, sync_folder, temporary_in
from migrator.files.user_folders import digest, key, resolved, state_folder

_TABLE = "run.json"


@dataclass(frozen=True)
class JournalEntry:
    """A file that a run replaces, creates or removes."""

    path: Path  # with links resolved
    temporary: Path
    before: str | None  # the digest of its content; None: there was no file
    after: str | None  # None: it was removed
    ours: bool  # whether the old content was this tool's own output


@dataclass
class TakenBack:
    """What has happened to the files of an undone run, or would happen."""

    restored: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)  # edited since: then nothing is undone
    left: list[Path] = field(default_factory=list)  # edited before the run came to them
    failed: list[str] = field(default_factory=list)  # "path: reason"

    @property
    def is_empty(self) -> bool:
        """Whether everything was as before the run already."""
        return not (self.restored or self.removed or self.changed or self.failed)


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
        self, entries: Sequence[JournalEntry], contents: Iterable[bytes], folders: Sequence[Path]
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
            with private(temporary) as file:
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

    def read(self, file: Path) -> PastRun:
        """The run that one of this journal's files tells of.

        Raises:
            UsageError: it cannot be read, is another user's, or tells of files elsewhere.
        """
        table, contents = _read(file)
        try:
            entries = [
                JournalEntry(Path(e.pop("path")), Path(e.pop("temporary")), **e)
                for e in table["entries"]
            ]
            folders = [Path(folder) for folder in table["folders"]]
            root = Path(table["root"])
            if not {e.before for e in entries} <= {None, *contents}:
                raise KeyError("a file's content")
        except (AttributeError, KeyError, TypeError) as error:
            raise _unreadable(file, error) from None
        if root != self.root:
            raise UsageError(f"{file}: is of another folder, {root}")
        named = [each for entry in entries for each in (entry.path, entry.temporary)]
        for path in (*named, *folders):
            if not self._may_hold(path):
                raise UsageError(f"{file}: names {path}, which is outside of {self.root}")
        for entry in entries:
            if entry.temporary.parent != entry.path.parent or not is_temporary(
                entry.temporary.name
            ):
                raise UsageError(
                    f"{file}: names {entry.temporary}, which is outside of a run's files"
                )
        return PastRun(self, file, entries, folders, contents)

    def _may_hold(self, path: Path) -> bool:
        """Whether a run of this root may have written there. It noted paths without links."""
        real = resolved(path.parent) / path.name
        return (
            real.is_relative_to(self.root)
            and real != self.root
            and path.name not in ("", ".", "..")
            and ".git" not in real.relative_to(self.root).parts
        )


@dataclass(frozen=True)
class PastRun:
    """A run that a journal tells of."""

    journal: Journal
    file: Path
    entries: Sequence[JournalEntry]
    folders: Sequence[Path]  # that it created
    contents: Mapping[str, bytes]  # by their digests

    def look(self) -> TakenBack:
        """What would happen to each file, if this run were taken back. Nothing is written."""
        held = {entry.path: _digest_of(entry.path) for entry in self.entries}
        has_begun = self.file == self.journal.last or any(
            held[e.path] == e.after != e.before for e in self.entries
        )
        found = TakenBack()
        for entry in self.entries:
            now = held[entry.path]
            if now == entry.before:
                continue
            if now == entry.after:
                (found.removed if entry.before is None else found.restored).append(entry.path)
            elif entry.temporary.exists() or not has_begun:
                found.left.append(entry.path)  # what the run did does not depend on it
            else:
                found.changed.append(entry.path)
        return found

    def take_back(self) -> TakenBack:
        """Give all files their previous content, or none if any of them was edited since.

        It may be called again after any interruption.
        """
        done = self.look()
        if done.changed:
            return done
        for entry in self.entries:
            with suppress(OSError):
                entry.temporary.unlink(missing_ok=True)
        wanted = {*done.restored, *done.removed}
        for entry in reversed(self.entries):
            if entry.path in wanted:
                try:
                    self._restore(entry)
                except OSError as error:
                    done.failed.append(f"{entry.path}: {error.strerror or error}")
        for folder in reversed(self.folders):
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            with suppress(OSError):  # it has other contents by now
                folder.rmdir()
        for folder in {entry.path.parent for entry in self.entries}:
            sync_folder(folder)
        if not done.failed:
            self.file.unlink(missing_ok=True)
        return done

    def _restore(self, entry: JournalEntry) -> None:
        if entry.before is None:
            entry.path.unlink()
            overwriting.forget(entry.path)
            return
        content = self.contents[entry.before]
        stage(entry.temporary, content, entry.path)
        entry.temporary.replace(entry.path)
        if entry.ours:
            overwriting.remember(entry.path, content)
        else:
            overwriting.forget(entry.path)


def _digest_of(path: Path) -> str | None:
    now = read_or_none(path)
    return None if now is None else digest(now)


def _read(file: Path) -> tuple[Any, dict[str, bytes]]:
    """The table of a journal, and the contents of files. Raises UsageError."""
    import zipfile

    try:
        with file.open("rb") as opened:
            owner = os.fstat(opened.fileno()).st_uid
            if hasattr(os, "geteuid") and owner != os.geteuid():
                raise UsageError(f"{file}: belongs to another user; nothing is undone by it")
            with zipfile.ZipFile(opened) as archive:
                names = [name for name in archive.namelist() if name != _TABLE]
                return json.loads(archive.read(_TABLE)), {n: archive.read(n) for n in names}
    except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> UsageError:
    return UsageError(f"{file}: cannot be read as the journal of a run: {error}")
