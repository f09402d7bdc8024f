"""Overwriting: which files a run may overwrite without losing anyone's work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from migrator.files import git, witness
from migrator.files.reading import read_or_none
from migrator.files.user_folders import cache_folder, digest, key, resolved

_UNTRACKED = "is not tracked by git"
_TOLD_NOT_TO_LOOK = "has changes that git is told to ignore (assume-unchanged, skip-worktree)"


def unsafe_to_write(files: Mapping[Path, bytes | None]) -> list[str]:
    """Why each of these files may not be overwritten, as "path: reason"; empty if all may.

    A file is safe if git's index has its content, or if that is this tool's own last output. Only
    the content counts: times and sizes can be those of another.

    Args:
        files: the content that was read; None for a missing file.
    """
    repositories: dict[Path | None, dict[Path, bytes]] = {}
    for path, content in files.items():
        if content is not None:
            repositories.setdefault(git.top(path), {})[path] = content
    reasons: dict[Path, str] = {}
    for root, held in repositories.items():
        reasons |= _lacking(root, held)
    return [
        f"{path} {reasons[path]}"
        for path, content in files.items()
        if path in reasons and not is_own_output(path, content)
    ]


def _lacking(root: Path | None, files: Mapping[Path, bytes]) -> dict[Path, str]:
    """The files whose content is not in the index of a repository, and why."""
    if root is None:
        return dict.fromkeys(files, "is not under version control")
    try:
        return _lacking_in(root, files)
    except git.GitError as error:
        return dict.fromkeys(files, f"is not known to be in version control ({error})")


def _lacking_in(root: Path, files: Mapping[Path, bytes]) -> dict[Path, str]:
    index = {entry.name: entry for entry in git.index(root)}
    names = {path: resolved(path).relative_to(root).as_posix() for path in files}
    found = {path: _UNTRACKED for path, name in names.items() if name not in index}
    others = [  # other bytes may be equal to git: line ends, filters
        path
        for path, content in files.items()
        if path not in found and index[names[path]].blob != _blob(content, index[names[path]].blob)
    ]
    blobs = git.blobs_of(root, [names[path] for path in others])
    for path, blob in zip(others, blobs, strict=True):
        entry = index[names[path]]
        if blob != entry.blob:
            found[path] = _TOLD_NOT_TO_LOOK if entry.is_passed_over else _changed(root)
    return found


def _changed(root: Path) -> str:
    unless = [
        f", unless filter.{name} made them, which only the repository itself names: it is not run"
        for name in git.own_filters(root)[:1]
    ]
    return "".join(["has changes that are not staged", *unless])


def _blob(content: bytes, like: str) -> str:
    """Git's name for a content, computed as in a repository."""
    algorithm = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0%b" % (len(content), content)).hexdigest()


def untracked(folders: Iterable[Path]) -> list[Path]:
    """The folders that contain files that git neither tracks nor ignores."""
    return [folder for folder in folders if witness.isdir(folder) and _has_untracked(folder)]


def _has_untracked(folder: Path) -> bool:
    root = git.top(folder)
    try:
        return root is not None and git.untracked(root, str(resolved(folder))) != []
    except git.GitError:
        return False


def held_otherwise(files: Iterable[Path]) -> list[Path]:
    """The files whose content in git's index is not that on disk, where one may be missing."""
    return [file for file in files if _is_held_otherwise(file)]


def _is_held_otherwise(file: Path) -> bool:
    there = next(folder for folder in file.parents if folder.is_dir())
    root = git.top(there)
    try:
        return root is not None and any(
            git.names(root, *git.PLAIN, "--name-only", "-z", "--", str(file))
        )
    except git.GitError:
        return False


def ignored(files: Iterable[Path]) -> list[Path]:
    """The files that git ignores, and does not track."""
    return [file for file in files if witness.isfile(file) and _is_ignored(file)]


def _is_ignored(file: Path) -> bool:
    root = git.top(file)
    how = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--")
    try:
        return root is not None and any(git.names(root, *how, str(resolved(file))))
    except git.GitError:
        return False


# ---- our own output ------------------------------------------------------------------------------


def is_own_output(path: Path, content: bytes | None) -> bool:
    """Whether a file contains the last output of this tool."""
    stamp = read_or_none(_stamp(path))
    return content is not None and stamp == digest(content).encode()


def remember(path: Path, content: bytes) -> None:
    """Record a file's present content as this tool's output."""
    with suppress(OSError):  # with a read-only home, the next run just asks for --allow-dirty
        _stamp(path).parent.mkdir(parents=True, exist_ok=True)
        _stamp(path).write_text(digest(content))


def forget(path: Path) -> None:
    """A file's content is no longer this tool's output."""
    with suppress(OSError):
        _stamp(path).unlink(missing_ok=True)


def _stamp(path: Path) -> Path:
    return cache_folder() / "written" / key(resolved(path))
