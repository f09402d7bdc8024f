"""The answer that there is nothing to do, if that is certain.

A commit waits for its hook, and most committed files have no GPU code: loading the tool takes
many times as long as finding that out. What an answer depends on besides these files (the tool,
its configuration, the words of GPU code) was stored by an earlier run (`premises`); here it is only
checked that all of it is unchanged. Then a file certainly needs nothing if it has none of
the words, nor has any file that it may import. In any other case, the tool is run.

Imports only modules that Python loads at start.
"""

from __future__ import annotations

import os
import sys
import time
from stat import S_ISREG

from migrator import TYPE_CHECKING
from migrator.cache.entries import HOOK, load
from migrator.files.states import changed, still_true
from migrator.idle.asked import Asked, asked
from migrator.idle.imported import Unsure, importable
from migrator.idle.summary import summary

if TYPE_CHECKING:
    from typing import Any

_MOST = 2**20  # bytes of a file
_MOST_FILES = 500  # that are checked


def is_answered(arguments: list[str]) -> bool:
    """Answer a hook that has nothing to do; False if that isn't certain."""
    started = time.perf_counter()
    try:
        question = asked(arguments)
        if question is None or not _Check(question).has_nothing():
            return False
    except (Unsure, OSError, ValueError):
        return False
    if not question.quiet:
        written = not question.looks
        said = summary(len(question.paths), 0, 0, time.perf_counter() - started, written=written)
        print(f"\n{said}", file=sys.stderr if question.diff else sys.stdout)
    return True


def premises_of(question: Asked) -> dict[str, Any]:
    """The stored premises of such a query, if they still hold.

    Raises:
        Unsure: there are none, or something has changed.
    """
    found: dict[str, Any] | None = load(HOOK, question.of)
    if found is None or changed(found["states"]) or not still_true(found["answers"]):
        raise Unsure
    return found


class _Check:
    """Checks the files of one query."""

    def __init__(self, question: Asked) -> None:
        self._paths = question.paths
        premises = premises_of(question)
        self._letters: list[bytes] = premises["letters"]
        self._no_source: set[str] = premises["no_source"]  # names of skipped folders
        self._marks: set[str] = premises["marks"]  # files that make a folder another project's root
        self._root: str = premises["root"]
        self._names: dict[str, frozenset[str]] = {}
        self._here = os.getcwd()

    def has_nothing(self) -> bool:
        if len(set(self._paths)) != len(self._paths):
            return False
        found: dict[str, bytes] = {}
        for path in self._paths:
            self._check_place(path)
            if not S_ISREG(os.lstat(path).st_mode):
                return False
            at = f"{self._here}/{path}"
            content = self._content(at)
            if not content.isascii() or b"\0" in content:
                return False
            found[at] = content
        queue = [*found]
        while queue:
            at = queue.pop()
            for other in importable(at, found[at], self._root, self._listed):
                if other not in found:
                    found[other] = self._content(other)
                    queue.append(other)
            if len(found) > _MOST_FILES:
                return False
        return True

    def _check_place(self, path: str) -> None:
        """Raise Unsure for anything but a module of the project around the working folder."""
        *folders, name = path.split("/")
        stem, suffix = os.path.splitext(name)
        if suffix != ".py" or not stem.isidentifier() or stem.startswith("Dockerfile"):
            raise Unsure
        at = self._here
        for folder in folders:
            at = f"{at}/{folder}"
            if folder in self._no_source or not folder or folder[0] == "." or os.path.islink(at):
                raise Unsure
            if not self._marks.isdisjoint(self._listed(at)):
                raise Unsure

    def _listed(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return self._names[folder]

    def _content(self, path: str) -> bytes:
        """The content of a file that has none of the words. Raises Unsure."""
        status = os.stat(path)
        if not S_ISREG(status.st_mode) or status.st_size > _MOST:
            raise Unsure
        with open(path, "rb") as file:
            content = file.read()
        if any(letters in content for letters in self._letters):
            raise Unsure
        start = content[:200].lower()
        if b"coding" in start and b"utf-8" not in start:  # another encoding
            raise Unsure
        return content
