"""Files that contain requirements among other things: only the listed texts are read.

Each kind of file (conda, toml, ini) has a reader that locates the requirements. Everything
around them stays byte for byte.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from migrator.diagnostics import Range
from migrator.formats import conda, file_kinds, ini, toml
from migrator.formats.embedded_text import call, restored
from migrator.formats.entries import Entry, PipList, valid


@dataclass(frozen=True)
class Manifest:
    """A file's text and its requirements, in lists."""

    text: str
    lists: Sequence[Sequence[Entry]]
    pip: PipList | None = None  # of a conda environment, for requirements that move there
    check: Callable[[str], object] = field(default=valid)  # raises ValueError for an invalid file

    @property
    def module(self) -> str:
        """Each requirement on a line of its own, those of a list in brackets."""
        lines: list[str] = []
        for entries in self.lists:
            calls = (call(e.function, e.text) for e in entries)
            lines += ["[", *(f"{each}," for each in calls), "]"]
        return "".join(f"{line}\n" for line in lines)

    @property
    def _entries(self) -> list[Entry]:
        return [entry for entries in self.lists for entry in entries]

    @cached_property
    def _rows(self) -> Sequence[Entry | None]:
        """The entries on the lines of the module; None for a bracket."""
        return [row for entries in self.lists for row in (None, *entries, None)]

    @cached_property
    def _starts(self) -> Sequence[int]:
        """Where the lines of the file start."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def located(self, where: Range) -> Range:
        entry = self._rows[where.line - 1] if where.line <= len(self._rows) else None
        if entry is None:
            return where
        start, end = (self._place(at) for at in (entry.start, entry.end))
        return replace(where, line=start[0], column=start[1], end_line=end[0], end_column=end[1])

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def with_module(self, module: str) -> str:
        found = [line for line in module.split("\n") if line not in ("[", "]", "")]
        if len(found) != len(self._entries):
            raise ValueError("a requirement is missing")
        changes: list[tuple[int, int, str]] = []
        moved: list[tuple[list[str], str]] = []
        for entry, line in zip(self._entries, found, strict=True):
            text = entry.held(restored(line.removesuffix(",")))
            if text == entry.text:
                continue
            if entry.line is None or text.startswith("python="):  # python itself stays with conda
                changes.append((entry.start, entry.end, entry.lines(text)))
                continue
            changes.append((*entry.line, ""))
            if text:
                moved.append((text.split("\n"), entry.tail))
        if not changes:
            return self.text
        if moved and self.pip is not None:
            changes.append((self.pip.at, self.pip.at, self.pip.lines(moved)))
        result, at = "", 0
        for start, end, new in sorted(changes):
            result += self.text[at:start]
            if start == end and self.pip is not None and not result.endswith("\n"):
                result += self.pip.end  # the last line of the file has no newline
            result += new
            at = end
        result += self.text[at:]
        self.check(result)
        return result


def read(path: Path, content: bytes) -> Manifest | None:
    """None for a file of another kind, or one with an unexpected layout.

    Raises UnicodeDecodeError.
    """
    if path.name in file_kinds.TOML:
        text = content.decode("utf-8")
        return Manifest(text, toml.lists(text, path.name), check=toml.check)
    if path.name in file_kinds.INI:
        text = content.decode("utf-8")
        return Manifest(text, ini.lists(text))
    if path.suffix in (".yml", ".yaml") and conda.may_be_one(content):
        text = content.decode("utf-8")
        found = conda.read(text)
        return Manifest(text, [found[0]], found[1]) if found is not None else None
    return None
