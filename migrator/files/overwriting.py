"""Overwriting: which files a run may overwrite without losing anyone's work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from migrator.files import git, witness
from migrator.files.places import cache_folder, digest, key, resolved
from migrator.files.reading import read_or_none

_TOLD_NOT_TO_LOOK = "has changes that git is told to ignore (assume-unchanged, skip-worktree)"


def unsafe_to_write(files: Mapping[Path, bytes | None]) -> list[str]:
    """Why each of these files may not be overwritten, as "path: reason"; empty if all may.

    A file is safe if git's index has its content, or if that is this tool's own last output.

    Args:
        files: the content that was read; None for a missing file.
    """
    problems = []
    repositories: dict[Path | None, _Repository] = {}
    for path, content in files.items():
        if content is None:
            continue
        root = git.top(path)
        if root not in repositories:
            repositories[root] = _Repository(root)
        reason = repositories[root].lacks(path, content)
        if reason and not is_own_output(path, content):
            problems.append(f"{path} {reason}")
    return problems


@dataclass(frozen=True)
class _Repository:
    root: Path | None

    def lacks(self, path: Path, content: bytes) -> str:
        """Why the index doesn't have a file's content; "" if it does."""
        if self.root is None:
            return "is not under version control"
        name = resolved(path).relative_to(self.root).as_posix()
        try:
            entry = self._index.get(name)
            if entry is None:
                return "is not tracked by git"
            if entry.blob == _blob(content, like=entry.blob):
                return ""
            if entry.is_passed_over:
                return _TOLD_NOT_TO_LOOK
            # Other bytes may be equal to git: line ends, filters.
            return "has changes that are not staged" if name in self._modified else ""
        except git.GitError as error:
            return f"is not known to be in version control ({error})"

    @cached_property
    def _index(self) -> dict[str, git.Entry]:
        assert self.root is not None
        return {entry.name: entry for entry in git.index(self.root)}

    @cached_property
    def _modified(self) -> frozenset[str]:
        assert self.root is not None
        return frozenset(git.names(self.root, "diff", "--name-only", "-z"))


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
