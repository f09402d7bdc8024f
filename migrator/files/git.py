"""Git, through its own command. Only this file runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from migrator.files import witness
from migrator.files.user_folders import resolved

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
        GitError: it failed, takes too long, or git is missing.
    """
    witness.asked_others()
    filters = own_filters(root) if arguments[0] in _FILTERING else ()
    try:
        done = subprocess.run(
            [*_git(root), *_without_filters(filters), *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
            env=_environment(root), timeout=_LONGEST,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} takes longer than {_LONGEST:.0f} s") from None
    except OSError as error:
        raise _not_run(error) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if not said:
            raise SaidNothing(f"exit code {done.returncode}")
        if any(word in line for line in said for word in ("promisor", "lazy fetching")):
            raise GitError(_MISSING)
        raise GitError(said[0].removeprefix("fatal: "))
    return done.stdout


_MISSING = "a partial clone lacks what is asked for: git fetch --refetch --no-filter"


# Whoever made the repository may have written its configuration, too (an archive holds it): of the
# programs that one can name, none is started. Nothing is fetched, which would start some, and
# nobody is asked for a password. What a file holds is looked at, if it seems to be another file.
_SETTINGS = (
    "core.fsmonitor=", f"core.hooksPath={os.devnull}", "safe.bareRepository=explicit",
    "core.checkStat=default", "core.trustCtime=true",
)  # fmt: skip
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
}  # fmt: skip
_LONGEST = 300.0  # seconds
_FILTERING = ("diff", "hash-object")  # commands that start filters of contents


def _git(root: Path) -> list[str]:
    """The command for a work tree."""
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    return ["git", "--literal-pathspecs", "--no-optional-locks", *settings, "-C", str(root)]


def own_filters(root: Path) -> list[str]:
    """The filters of contents that only the configuration of a repository itself names.

    They are not started. Those of the user's own configuration (git-lfs) are.
    """
    how = ("config", "--show-scope", "--name-only", "-z", "--get-regexp")
    try:
        listed = iter([*names(root, *how, r"^filter\..*\.(clean|process)$")])
    except SaidNothing:  # there are none
        return []
    found = dict.fromkeys(
        key.split(".", 1)[1].rpartition(".")[0]
        for scope, key in zip(listed, listed, strict=True)
        if scope in ("local", "worktree")
    )
    if odd := [name for name in found if "=" in name]:
        raise GitError(f"the repository names a filter {odd[0]!r}, which can't be switched off")
    return list(found)


def _without_filters(filters: Iterable[str]) -> Iterator[str]:
    for name in filters:
        for setting in ("clean=", "process=", "required=false"):
            yield from ("-c", f"filter.{name}.{setting}")


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
class IndexEntry:
    """A file in the index."""

    name: str
    blob: str
    is_passed_over: bool  # git assumes it to be unchanged, whatever the work tree contains


def index(root: Path) -> Iterator[IndexEntry]:
    """The entries of the index. Raises GitError."""
    for line in names(root, "ls-files", "-s", "-v", "-z"):  # `H mode blob stage<TAB>name`
        entry, _, name = line.partition("\t")
        flag, _, blob, _ = entry.split(" ")
        yield IndexEntry(name, blob, flag.islower() or flag == "S")


# Options of a comparison, independent of the user's configuration. To look into the work tree of a
# submodule, git would start another git there, by that one's configuration.
PLAIN = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "-M", "--submodule=short",
    "--ignore-submodules=dirty",
)  # fmt: skip


def blobs_of(root: Path, files: Sequence[str]) -> list[str]:
    """What git would call the contents of files in a work tree, as they are now: by the content
    alone, with its conversion of line ends. Raises GitError."""
    found: list[str] = []
    for first in range(0, len(files), _AT_ONCE):
        part = files[first : first + _AT_ONCE]
        found += run(root, "hash-object", "--", *part).decode().split()
    return found


_AT_ONCE = 500  # arguments of a command


@dataclass(frozen=True)
class ChangedFile:
    """A file that differs between two sides; `status` is git's letter, maybe with a number."""

    old_mode: str
    new_mode: str
    blob: str  # the content before
    status: str
    old: str  # its name
    new: str


def differences(root: Path, *arguments: str) -> Iterator[ChangedFile]:
    """The differences that `git diff` finds for its arguments. Raises GitError."""
    words = names(root, *PLAIN, "--raw", "-z", "--no-abbrev", *arguments)
    for word in words:  # `:mode mode blob blob status`, then one name, or two
        old_mode, new_mode, blob, _, status = word[1:].split(" ")
        old = new = next(words)
        if status[0] in "RC":
            new = next(words)
        yield ChangedFile(old_mode, new_mode, blob, status, old, new)


class Blobs:
    """The contents of a repository's blobs, all read through one process."""

    def __init__(self, root: Path) -> None:
        command = [*_git(root), "cat-file", "--batch"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=_environment(root),
            )  # fmt: skip
        except OSError as error:
            raise _not_run(error) from error

    def read(self, blob: str) -> bytes:
        """Raises GitError for a missing blob (a partial clone)."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        end = Timer(_LONGEST, self._process.kill)
        end.start()
        try:
            into.write(f"{blob}\n".encode())
            into.flush()
            *_, size = out.readline().split() or [b"missing"]
            content = out.read(int(size) + 1) if size.isdigit() else b""  # with a line's end
        except OSError:  # it has ended
            content = b""
        finally:
            end.cancel()
        if not content:
            raise GitError(_MISSING)
        return content[:-1]

    def close(self) -> None:
        self._process.communicate()


def _environment(root: Path) -> dict[str, str]:
    """In a hook another index file may be set; it only applies to the repository of this folder."""
    left_out = {"GIT_DIFF_OPTS"}
    if root != top(Path.cwd()):
        left_out |= _LOCAL
    return {n: value for n, value in os.environ.items() if n not in left_out} | _VARIABLES
