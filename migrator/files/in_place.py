"""Writing in place: all files of a run, or none.

journal -> stage -> is each file still what was read, and may it be overwritten -> replace. If any
step fails, replaced files are restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from migrator.errors import UsageError
from migrator.files import witness
from migrator.files.failures import advice
from migrator.files.journal import Journal, JournalEntry, PastRun, TakenBack
from migrator.files.overwriting import forget, is_own_output, remember, unsafe_to_write
from migrator.files.reading import read_or_none
from migrator.files.staging import stage, sync_folder, temporary_in
from migrator.files.user_folders import digest, resolved

_NOTHING = "nothing was written"


@dataclass(frozen=True)
class FileChange:
    """A file's old and new content; None if there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None


def write(changes: Mapping[Path, Sequence[FileChange]], allow_dirty: bool = False) -> list[str]:
    """Replace files by roots (resolved folders), whose locks are held, in the given order.

    Returns what could not be preserved of a file besides its content, as "path: what".

    Raises:
        UsageError: a file may not be overwritten, has changed since it was read, or cannot be
            written. Nothing is changed then, or the message says what is.
    """
    every = [change for of_root in changes.values() for change in of_root]
    _refuse_read_only(change.path for change in every if change.before is not None)
    if not allow_dirty:
        _refuse_unsafe(every)
    runs = [_Run(root, of_root) for root, of_root in changes.items() if of_root]
    try:
        for run in runs:
            run.stage()
        for change in every:
            if read_or_none(change.path) != change.before:
                raise UsageError(f"{change.path} has changed in the meantime; {_NOTHING}")
        if not allow_dirty:
            _refuse_unsafe(every)
        for run in runs:
            run.replace()
    except BaseException as error:
        failed = [line for run in reversed(runs) for line in run.take_back()]
        if failed:
            raise UsageError(
                f"{str(error).partition(f'; {_NOTHING}')[0]}; what was written could not be "
                f"undone: {'; '.join(failed)}. Try again: --undo"
            ) from error
        raise
    for run in runs:
        run.finish()
    return [line for run in runs for line in run.lost]


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """What fails here fails for a file: its name is said, not that of a temporary one."""
    try:
        yield
    except OSError as error:
        said = f"{path}: {error.strerror or error}; {_NOTHING}{advice(error, in_place=True)}"
        raise UsageError(said) from error


def _refuse_read_only(paths: Iterable[Path]) -> None:
    """Whoever took the right to write from a file meant it, though it could be replaced."""
    closed = [path for path in paths if path.exists() and not path.stat().st_mode & 0o222]
    if closed:
        raise UsageError(
            f"{closed[0]} is read-only{_more(len(closed) - 1, ' file')}; {_NOTHING}. Make it "
            "writable, leave it out with --exclude, or write a copy with -o DIR"
        )


def _refuse_unsafe(changes: Iterable[FileChange]) -> None:
    problems = unsafe_to_write({change.path: change.before for change in changes})
    if problems:
        raise UsageError(
            f"{problems[0]}{_more(len(problems) - 1, ' file')}; {_NOTHING}. Commit or stage first, "
            "write a copy with -o DIR, or use --allow-dirty"
        )


@dataclass
class _Run:
    """The files of one root."""

    root: Path
    changes: Sequence[FileChange]
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.root)
        self.entries = [_entry(change) for change in self.changes]
        self.begun = False

    def stage(self) -> None:
        folders = _missing(entry.path.parent for entry in self.entries)
        contents = [change.before for change in self.changes if change.before is not None]
        with _about(self.journal.unfinished.parent):
            self.journal.begin(self.entries, contents, folders)
        self.begun = True
        for folder in folders:
            with _about(folder):
                folder.mkdir()
        for change, entry in zip(self.changes, self.entries, strict=True):
            if change.after is not None:
                with _about(change.path):
                    lost = stage(entry.temporary, change.after, entry.path)
                self.lost += [f"{change.path}: {what}" for what in lost]

    def replace(self) -> None:
        for change, entry in zip(self.changes, self.entries, strict=True):
            with _about(change.path):
                if entry.after is None:
                    entry.path.unlink()
                else:
                    entry.temporary.replace(entry.path)
        for folder in {entry.path.parent for entry in self.entries}:
            sync_folder(folder)

    def take_back(self) -> list[str]:
        """Why files could not be given their previous content."""
        if not self.begun:
            return []
        done = self.journal.read(self.journal.unfinished).take_back()
        return [*done.failed, *(f"{path}: has changed since" for path in done.changed)]

    def finish(self) -> None:
        for change, entry in zip(self.changes, self.entries, strict=True):
            if change.after is None:
                forget(entry.path)
            else:
                remember(entry.path, change.after)
        self.journal.finish()


def _entry(change: FileChange) -> JournalEntry:
    real = resolved(change.path)
    before, after = (
        None if content is None else digest(content) for content in (change.before, change.after)
    )
    ours = is_own_output(real, change.before)
    return JournalEntry(real, temporary_in(real.parent), before, after, ours)


def _missing(folders: Iterable[Path]) -> list[Path]:
    """The folders to be created, outer ones first."""
    found = {
        around
        for folder in set(folders)
        for around in (folder, *folder.parents)
        if not around.exists()
    }
    return sorted(found)


# ---- taking back ---------------------------------------------------------------------------------


def recover(roots: Iterable[Path]) -> list[str]:
    """Undo interrupted runs, so that the next one starts from the original state.

    Returns what was done, a line for each root. Raises UsageError if that fails.
    """
    said = []
    for run in _unfinished(roots):
        _refuse_changed([run], f"a run that was interrupted; {_NOTHING}")
        done = run.take_back()
        _refuse_failed(done)
        said.append(f"{run.journal.root}: an earlier run was interrupted; its changes were undone")
        said += [f"{path}: has changed since; left as it is" for path in done.left]
    return said


def interrupted(roots: Iterable[Path]) -> list[str]:
    """What a run that only looks says of interrupted runs, a line for each root."""
    return [
        f"{root}: an earlier run was interrupted, or still writes: some files may be as it left "
        "them. The next run in place undoes that first; tpu-migrate --undo does nothing else"
        for root in roots
        if witness.exists(Journal(root).unfinished)
    ]


def undo(roots: Iterable[Path], *, look: bool = False) -> TakenBack:
    """Undo the last run of some roots: all of it, or nothing.

    Args:
        look: only say what would be done.

    Raises:
        UsageError: there is none, a file was edited since, or can't be written.
    """
    runs = []
    for root in roots:
        journal = Journal(root)
        file = journal.unfinished if journal.unfinished.exists() else journal.last
        if not file.exists():
            raise UsageError(f"{root}: no run to undo; only the last run in place can be")
        runs.append(journal.read(file))
    _refuse_changed(runs, "the run; nothing was undone")
    whole = TakenBack()
    for run in runs:
        done = run.look() if look else run.take_back()
        _refuse_failed(done)
        whole.restored += done.restored
        whole.removed += done.removed
        whole.left += done.left
    return whole


def _unfinished(roots: Iterable[Path]) -> Iterator[PastRun]:
    for root in roots:
        journal = Journal(root)
        if journal.unfinished.exists():
            yield journal.read(journal.unfinished)


def _refuse_changed(runs: Iterable[PastRun], what: str) -> None:
    changed = [path for run in runs for path in run.look().changed]
    if changed:
        raise UsageError(
            f"{changed[0]}{_more(len(changed) - 1, ' file')}: has changed since {what}. "
            "Keep a copy of your edits, put the file back (git restore), then --undo"
        )


def _refuse_failed(done: TakenBack) -> None:
    if done.failed:
        raise UsageError(f"cannot be undone: {done.failed[0]}{_more(len(done.failed) - 1)}")


def _more(count: int, what: str = "") -> str:
    return f" (and {count} more{what}{'s' * (what != '' and count > 1)})" if count else ""
