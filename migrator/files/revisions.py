"""Revisions: which lines a change has added, and which results concern them.

A change is everything since it branched off the revision that it is compared with:
commits, staged and unstaged changes, and untracked files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache, cached_property
from pathlib import Path

from migrator.diagnostics import Range
from migrator.errors import UsageError
from migrator.files import git
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds, notebook

AUTO = "auto"  # as a revision: the default branch
_USUAL = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_GITLINK = "160000"  # the mode of a submodule


@dataclass(frozen=True)
class NewLines:
    """New lines of a file, by the cell of a notebook; cell 0 is a source file."""

    cells: Mapping[int, frozenset[int]] = field(default_factory=dict)
    all: bool = False  # the file is new

    def meets(self, where: Range) -> bool:
        """Whether a range contains one of them."""
        lines = self.cells.get(where.cell, frozenset())
        return self.all or any(n in lines for n in range(where.line, where.end_line + 1))


class Changes:
    """Differences from a revision, in the repository of each requested file.

    The files of a submodule are compared with the submodule's commit in the revision.
    """

    def __init__(self, revision: str) -> None:
        if not revision:
            raise UsageError("--diff-base: the revision is empty")
        self.revision = revision
        self._repositories: dict[Path, _Repository] = {}
        self._top = cache(git.top)

    def touched(self, path: Path) -> bool:
        """Whether a file is new or differs.

        Raises:
            UsageError: no git, or no such revision.
        """
        repository, name = self._repository_of(path)
        return repository.all or name in repository.changed

    def lines(self, path: Path, content: bytes) -> NewLines:
        """The lines of a file that are new or differ. Raises UsageError as `touched` does."""
        repository, name = self._repository_of(path)
        if repository.all:
            return NewLines(all=True)
        if name not in repository.changed:
            return NewLines()
        before = repository.changed[name]
        if before is None:
            return NewLines(all=True)
        try:
            if file_kinds.is_notebook(path):
                return _new_in_cells(git.run(repository.root, "cat-file", "blob", before.blob),
                                     content)  # fmt: skip
            if b"\r" in content.replace(b"\r\n", b""):  # git counts lines differently from Python
                return NewLines(all=True)
            paths = dict.fromkeys((before.name, name))
            text = git.run(repository.root, *git.PLAIN, "-U0", "--text",
                           repository.base, "--", *paths)  # fmt: skip
        except git.GitError as error:
            raise UsageError(f"--diff-base {self.revision}: {path}: {error}") from None
        found: set[int] = set()
        for match in _HUNK.finditer(text):
            first = int(match[1])
            found.update(range(first, first + int(match[2] or 1)))
        return NewLines({0: frozenset(found)})

    @property
    def bases(self) -> list[str]:
        """The abbreviated commits of the comparison."""
        return sorted({r.base[:10] for r in self._repositories.values() if r.base})

    def _repository_of(self, path: Path) -> tuple[_Repository, str]:
        real = resolved(path)
        root = self._top(real.parent)
        if root is None:
            raise UsageError(f"--diff-base: {path} is not under version control (git)")
        return self._repository(root), real.relative_to(root).as_posix()

    def _repository(self, root: Path) -> _Repository:
        if root not in self._repositories:
            try:
                made = self._in_submodule(root) or _Repository(root, self._base(root))
                made.changed  # noqa: B018  asks git now, so that what it says is told here
            except git.GitError as error:
                raise UsageError(f"--diff-base {self.revision}: {error}") from None
            self._repositories[root] = made
        return self._repositories[root]

    def _in_submodule(self, root: Path) -> _Repository | None:
        """A submodule's changes since its recorded commit; None for a separate repository."""
        outside = git.top(root.parent)
        if outside is None:
            return None
        name = root.relative_to(outside).as_posix()
        if not any(entry.startswith(f"{_GITLINK} ") for entry in
                   git.names(outside, "ls-files", "-s", "-z", "--", name)):  # fmt: skip
            return None
        parent = self._repository(outside)
        for entry in () if parent.all else git.names(outside, "ls-tree", "-z", parent.base, name):
            mode, _, commit = entry.partition("\t")[0].split(" ")
            if mode == _GITLINK:
                return _Repository(root, self._resolved(root, commit))
        return _Repository(root, "")

    def _base(self, root: Path) -> str:
        """The commit where the change branched off the revision."""
        commit = self._resolved(root, self.revision)
        head = git.commit(root, "HEAD")
        if head is None:
            raise UsageError(f"--diff-base {self.revision}: {root} has no commit yet")
        try:
            return git.run(root, "merge-base", commit, head).decode().split()[0]
        except git.GitError:
            why = _if_shallow(root) or "; nothing to compare with"
            raise UsageError(
                f"--diff-base {self.revision}: has no commit in common with HEAD{why}"
            ) from None

    def _resolved(self, root: Path, revision: str) -> str:
        names = _default(os.environ) if revision == AUTO else [revision]
        found = next(filter(None, (git.commit(root, name) for name in names)), None)
        if found is None:
            if len(names) > 1:
                raise UsageError(
                    f"--diff-base: {root} has no default branch ({', '.join(names)})"
                    f"{_if_shallow(root)}; name one: --diff-base REV"
                )
            raise UsageError(
                f"--diff-base {names[0]}: {root} has no such revision{_if_shallow(root)}"
            )
        return found


# ---- one repository ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Before:
    """A file's previous state."""

    name: str
    blob: str


@dataclass(frozen=True)
class _Repository:
    root: Path
    base: str  # the commit to compare with; "": everything is new

    @property
    def all(self) -> bool:
        return not self.base

    @cached_property
    def changed(self) -> dict[str, _Before | None]:
        """The previous state, by name of each new or different file."""
        if self.all:
            return {}
        found: dict[str, _Before | None] = {}
        for each in git.differences(self.root, self.base):
            found[each.new] = _Before(each.old, each.blob) if each.status[0] in "MRT" else None
        return found | dict.fromkeys(git.untracked(self.root))


def _default(environment: Mapping[str, str]) -> Sequence[str]:
    """Names of a change's target branch; GitHub and GitLab jobs tell it."""
    if branch := environment.get("GITHUB_BASE_REF"):
        return [f"origin/{branch}", branch]
    if commit := environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA"):
        return [commit]
    return _USUAL


def _if_shallow(root: Path) -> str:
    shallow = git.run(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    how = "(actions/checkout: fetch-depth: 0; GitLab: GIT_DEPTH: 0; else git fetch --unshallow)"
    return f"; this clone is shallow: fetch the history {how}" if shallow else ""


# ---- notebooks -----------------------------------------------------------------------------------


def _new_in_cells(before: bytes, after: bytes) -> NewLines:
    """New lines in a notebook's code cells; outputs, ids and layout don't count."""
    try:
        old, new = notebook.read_notebook(before), notebook.read_notebook(after)
    except notebook.NotANotebook:
        return NewLines(all=True)
    texts, places = [line for line, _ in _rows(old)], list(_rows(new))
    same = SequenceMatcher(None, texts, [line for line, _ in places], autojunk=False)
    found: dict[int, set[int]] = {}
    for tag, _, _, first, last in same.get_opcodes():
        for _, (cell, line) in places[first:last] if tag != "equal" else ():
            found.setdefault(cell, set()).add(line)
    return NewLines({cell: frozenset(lines) for cell, lines in found.items()})


def _rows(book: notebook.Notebook) -> list[tuple[str, tuple[int, int]]]:
    """The lines of all cells, with a line between them, and where each is."""
    return [
        row
        for cell in book.cells
        for row in [
            ("\0", (cell.number, 0)),
            *((line, (cell.number, n)) for n, line in enumerate(cell.source.split("\n"), 1)),
        ]
    ]
