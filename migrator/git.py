"""Git, by its own command. The one place that runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

# What git tells the hooks that it starts; it is about one repository.
_LOCAL = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX",
})  # fmt: skip


class GitError(Exception):
    """What git said, in one line."""


def top(path: Path) -> Path | None:
    """The top of the work tree that a file or folder is in, or None."""
    real = path.resolve()
    return next((f for f in (real, *real.parents) if (f / ".git").exists()), None)


def run(root: Path, *arguments: str) -> bytes:
    """What a command of git's prints in the work tree at `root`.

    Raises:
        GitError: it failed, or there is no git.
    """
    command = ["git", "--literal-pathspecs", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=_environment(root))
    except OSError as error:
        raise GitError(f"git can not be run: {error.strerror or error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(said[0].removeprefix("fatal: ") if said else f"exit code {done.returncode}")
    return done.stdout


def names(root: Path, *arguments: str) -> Iterator[str]:
    """The paths and words that a command of git's prints with `-z`."""
    for name in run(root, *arguments).split(b"\0"):
        if name:
            yield os.fsdecode(name)


class Blobs:
    """The contents of a repository's blobs, all of them by one process."""

    def __init__(self, root: Path) -> None:
        command = ["git", "-C", str(root), "cat-file", "--batch"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(root)
            )
        except OSError as error:
            raise GitError(f"git can not be run: {error.strerror or error}") from error

    def read(self, blob: str) -> bytes:
        """Raises GitError for one that is not there (a partial clone)."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        into.write(f"{blob}\n".encode())
        into.flush()
        *_, size = out.readline().split() or [b"missing"]
        if not size.isdigit():
            raise GitError(f"{blob} is missing")
        content = out.read(int(size))
        out.read(1)  # the end of the line
        return content

    def close(self) -> None:
        self._process.communicate()


def _environment(root: Path) -> dict[str, str]:
    """In a hook the index may be another file; that is of the repository of this folder alone."""
    left_out = {"GIT_DIFF_OPTS"}
    if root != top(Path.cwd()):
        left_out |= _LOCAL
    return {name: value for name, value in os.environ.items() if name not in left_out}
