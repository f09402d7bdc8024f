"""The code from which a golden was recorded, if git has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migrator.files import git

from .goldens import ScriptGolden, digest
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
