"""Git, through its own command. Only this file runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from migrator.files import witness
from migrator.files.places import resolved

# Variables that git sets for hooks; they refer to one repository.
_LOCAL = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX",
})  # fmt: skip


class GitError(Exception):
    """Git's error message, in one line."""


class SaidNothing(GitError):
    """Git failed without a message, only with an exit code."""


def _not_run(error: OSError) -> GitError:
    missing = isinstance(error, FileNotFoundError)
    return GitError(
        "git is not installed, or not on PATH"
        if missing
        else f"git cannot be run: {error.strerror or error}"
    )


def top(path: Path) -> Path | None:
    """The top of the work tree that contains a file or folder, or None."""
    real = resolved(path)
    return next((f for f in (real, *real.parents) if witness.exists(f / ".git")), None)


def run(root: Path, *arguments: str) -> bytes:
    """The output of a git command in the work tree at `root`.

    Raises:
        GitError: it failed, or git is missing.
    """
    witness.asked_others()
    try:
        done = subprocess.run(
            [*_git(root), *arguments], capture_output=True, check=False, env=_environment(root)
        )
    except OSError as error:
        raise _not_run(error) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if not said:
            raise SaidNothing(f"exit code {done.returncode}")
        raise GitError(said[0].removeprefix("fatal: "))
    return done.stdout


def _git(root: Path) -> list[str]:
    """The command for a work tree, without programs that its configuration may name.

    Only filters of contents (`filter.*.clean`) are left: whether a file differs can't be told
    without them.
    """
    return [
        "git", "--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=",
        "-c", "safe.bareRepository=explicit", "-C", str(root),
    ]  # fmt: skip


def names(root: Path, *arguments: str) -> Iterator[str]:
    """The paths and words that a git command prints with `-z`."""
    for name in run(root, *arguments).split(b"\0"):
        if name:
            yield os.fsdecode(name)


def commit(root: Path, revision: str) -> str | None:
    """The hash of a revision's commit, or None. Raises GitError if git can't tell."""
    how = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    try:
        return run(root, *how, f"{revision}^{{commit}}").decode().strip()
    except SaidNothing:
        return None


def untracked(root: Path, *paths: str) -> list[str]:
    """Files that git neither tracks nor ignores, among all or some paths."""
    return list(names(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *paths))


@dataclass(frozen=True)
class Entry:
    """A file in the index."""

    name: str
    blob: str
    is_passed_over: bool  # git assumes it to be unchanged, whatever the work tree contains


def index(root: Path) -> Iterator[Entry]:
    """The entries of the index. Raises GitError."""
    for line in names(root, "ls-files", "-s", "-v", "-z"):  # `H mode blob stage<TAB>name`
        entry, _, name = line.partition("\t")
        flag, _, blob, _ = entry.split(" ")
        yield Entry(name, blob, flag.islower() or flag == "S")


# Options of a comparison, independent of the user's configuration.
PLAIN = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "-M")


@dataclass(frozen=True)
class Difference:
    """A file that differs between two sides; `status` is git's letter, maybe with a number."""

    old_mode: str
    new_mode: str
    blob: str  # the content before
    status: str
    old: str  # its name
    new: str


def differences(root: Path, *arguments: str) -> Iterator[Difference]:
    """The differences that `git diff` finds for its arguments. Raises GitError."""
    words = names(root, *PLAIN, "--raw", "-z", "--no-abbrev", *arguments)
    for word in words:  # `:mode mode blob blob status`, then one name, or two
        old_mode, new_mode, blob, _, status = word[1:].split(" ")
        old = new = next(words)
        if status[0] in "RC":
            new = next(words)
        yield Difference(old_mode, new_mode, blob, status, old, new)


class Blobs:
    """The contents of a repository's blobs, all read through one process."""

    def __init__(self, root: Path) -> None:
        command = [*_git(root), "cat-file", "--batch"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(root)
            )
        except OSError as error:
            raise _not_run(error) from error

    def read(self, blob: str) -> bytes:
        """Raises GitError for a missing blob (a partial clone)."""
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
    """In a hook another index file may be set; it only applies to the repository of this folder."""
    left_out = {"GIT_DIFF_OPTS"}
    if root != top(Path.cwd()):
        left_out |= _LOCAL
    return {name: value for name, value in os.environ.items() if name not in left_out}
