"""Documents as open in an editor. Positions are counted as in findings here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from migrator.diagnostics import Range, SourceMap
from migrator.formats import file_kinds, notebook, python_source
from migrator.pipeline.suppress import comment_for


@dataclass(frozen=True)
class DocumentEdit:
    """New text for a part of a text; lines and columns from 0, in characters."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Text:
    """One text of an editor: a file, or a cell of a notebook."""

    uri: str
    version: int | None
    source: str
    cell: int = 0  # counted from 1 over all cells; 0: a file
    is_code: bool = True

    @cached_property
    def lines(self) -> list[str]:
        return SourceMap(self.source).lines

    def edits(self, after: str) -> Iterator[DocumentEdit]:
        """The edits that turn this text into another."""
        before, lines = self.lines if self.source else [], _lines(after)
        matcher = SequenceMatcher(None, before, lines, autojunk=False)
        for tag, start, end, first, last in matcher.get_opcodes():
            if tag != "equal":
                yield _edit(before, start, end, "".join(lines[first:last]))

    def with_edit(self, edit: DocumentEdit) -> Text:
        """The text with an edit within one line."""
        line = self.lines[edit.line]
        new = line[: edit.column] + edit.text + line[edit.end_column :]
        lines = [*self.lines[: edit.line], new, *self.lines[edit.line + 1 :]]
        return replace(self, source="".join(lines))


def _lines(text: str) -> list[str]:
    return SourceMap(text).lines if text else []


def _edit(before: Sequence[str], start: int, end: int, new: str) -> DocumentEdit:
    """The edit that replaces whole lines; for a single line, only the difference."""
    if end - start == 1 and before[start].endswith("\n") and new.endswith("\n"):
        old = before[start].rstrip("\r\n")
        line = new.rstrip("\r\n")
        if new.count("\n") == 1 and new[len(line) :] == before[start][len(old) :]:
            head = _common(old, line)
            tail = _common(old[head:][::-1], line[head:][::-1])
            return DocumentEdit(start, head, start, len(old) - tail, line[head : len(line) - tail])
    if end == len(before) and before and not before[-1].endswith(("\n", "\r")):
        return DocumentEdit(start, 0, end - 1, len(before[-1]), new)
    return DocumentEdit(start, 0, end, 0, new)


def _common(one: str, other: str) -> int:
    """The number of characters that both have in common at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(frozen=True)
class OpenDocument:
    """A file that is open in an editor."""

    uri: str
    path: Path
    texts: tuple[Text, ...]
    has_cells: bool = False  # a notebook whose cells are separate texts in the editor

    @cached_property
    def content(self) -> bytes:
        """The file's content if it were saved now."""
        if self.has_cells:
            return _as_notebook(self.texts)
        return python_source.encode(self.texts[0].source)

    @cached_property
    def _book(self) -> notebook.Notebook | None:
        if not file_kinds.is_notebook(self.path):
            return None
        try:
            return notebook.read_notebook(self.content)
        except notebook.NotANotebook:
            return None

    def place(self, where: Range) -> tuple[Text, Range]:
        """The text that contains a finding, and the position there."""
        if self.has_cells:
            return next((t for t in self.texts if t.cell == where.cell), self.texts[0]), where
        text = self.texts[0]
        if where.cell and self._book is not None:  # it is open as plain JSON
            row = self._book.row(where.cell, where.line)
            where = Range(row, 1, row, len(text.lines[row - 1]) + 1)
        return text, where

    def edits(self, content: bytes) -> Iterator[tuple[Text, list[DocumentEdit]]]:
        """The edits that turn this content into another, text by text."""
        if not self.has_cells:
            read = python_source.decode(content)
            after = ("\ufeff" if read.bom else "") + read.text
            yield self.texts[0], list(self.texts[0].edits(after))
            return
        sources = {cell.number: cell.source for cell in notebook.read_notebook(content).cells}
        for text in self.texts:
            before = text.source.replace("\r\n", "\n")
            if sources.get(text.cell, before) != before:
                plain = replace(text, source=before)
                yield text, list(plain.edits(sources[text.cell]))

    def comment(self, where: Range, code: str) -> tuple[Text, DocumentEdit] | None:
        """The edit that switches a rule off at a finding; None if no comment fits there."""
        text = next((t for t in self.texts if t.cell == where.cell), None)
        if text is None:  # in the JSON of a notebook
            return None
        source, first, last = text.source, where.line, where.end_line
        rows: Sequence[int] = range(1, len(text.lines) + 1)
        if self._book is not None:
            cell = next(c for c in self._book.cells if c.number == where.cell)
            source, rows = cell.code, cell.lines  # as Python: magics are calls
            inside = [n for n, row in enumerate(rows, 1) if first <= row <= last]
            first, last = min(inside, default=0), max(inside, default=0)
        found = comment_for(source, first, last, code)
        if found is None:
            return None
        line, column, comment = found
        return text, DocumentEdit(rows[line - 1] - 1, column, rows[line - 1] - 1, column, comment)

    def with_edit(self, text: Text, edit: DocumentEdit) -> OpenDocument:
        texts = tuple(t.with_edit(edit) if t is text else t for t in self.texts)
        return replace(self, texts=texts)


def _as_notebook(texts: Sequence[Text]) -> bytes:
    """The notebook file, reduced to its code."""
    cells = []
    for text in texts:
        source = text.source.replace("\r\n", "\n")
        cell = {"cell_type": "code" if text.is_code else "markdown", "source": source}
        cells.append(cell)
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()
