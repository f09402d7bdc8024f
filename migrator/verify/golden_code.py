"""The code that a golden was recorded from, or that was there before a migration, if git has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.files import git

from .goldens import ScriptGolden, digest
from .in_target_python import command_line
from .script import Script


def commit_of(folder: Path) -> str | None:
    """The commit whose Python files in ``folder`` are these; None if unknown."""
    root = git.top(folder)
    if root is None:
        return None
    try:
        found = git.commit(root, "HEAD")
        where = str(folder.resolve())
        changed = git.names(root, *git.PLAIN, "--name-only", "-z", "HEAD", "--", where)
        new = git.untracked(root, where)
        return None if any(name.endswith(".py") for name in (*changed, *new)) else found
    except git.GitError:
        return None


def restored(
    script: Script, golden: ScriptGolden, to: Path, *without: Path | None
) -> Script | None:
    """``script`` in a copy ``to`` of its folder, with the code of the golden's commit; None where
    that can't be had as it was."""
    folder = script.folder.resolve()
    root = git.top(folder)
    if root is None or golden.commit is None:
        return None
    copy = script.copy(to, *without)
    try:
        within = folder.relative_to(root.resolve()).as_posix()
        listed = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", golden.commit)
        names = list(git.names(root, *listed, "--", within))
        for path in copy.rglob("*.py"):
            path.unlink()
        for name in names:
            if name.endswith(".py"):
                path = copy / Path(name).relative_to(within)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(git.run(root, "cat-file", "blob", f"{golden.commit}:{name}"))
    except (git.GitError, OSError, ValueError):
        return None
    return replace(script, folder=copy) if digest(copy) == golden.source else None


_COMMITS = 50  # of one file, that are looked through


def how_to_verify_original(
    file: Path, is_migrated: Callable[[bytes], bool], asked: Sequence[str]
) -> str:
    """The commands that verify what a migrated file was before; "" if git doesn't have it.

    ``asked``: the words after `tpu-migrate verify`.
    """
    root, file, here = git.top(file.parent), file.resolve(), Path.cwd().resolve()
    revision = _before_migration(root, file, is_migrated) if root is not None else None
    if root is None or revision is None:
        return ""
    root = root.resolve()
    start = here if here.is_relative_to(root) else root
    beside = Path(os.path.relpath(root.with_name(f"{root.name}-original"), here))
    words = [
        os.path.relpath(file, start) if Path(word).resolve() == file else word for word in asked
    ]
    commands = (
        ["git", "-C", str(root), *_ADD, str(here / beside), revision]
        if start != here
        else ["git", *_ADD, str(beside), revision],
        ["cd", str(beside / start.relative_to(root))],
        ["tpu-migrate", "verify", *words],
    )
    return "".join(f"\n    {command_line(command)}" for command in commands)


_ADD = ("worktree", "add", "--detach")


def _before_migration(root: Path, file: Path, is_migrated: Callable[[bytes], bool]) -> str | None:
    """The newest revision in which a file isn't migrated."""
    name = file.relative_to(root.resolve()).as_posix()
    newer = "HEAD"
    try:
        listed = ("log", "-z", "--format=%h", f"--max-count={_COMMITS}", "--", name)
        for revision in git.names(root, *listed):
            if not is_migrated(git.run(root, "cat-file", "blob", f"{revision}:{name}")):
                return newer
            newer = f"{revision}~1"  # the commit that migrated it, or a later one
    except git.GitError:  # no commit yet, or it was not there in one
        pass
    return None
