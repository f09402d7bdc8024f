"""Positions in documents, as the protocol counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument, Workspace

from migrator.diagnostics import Range, SourceMap
from migrator.editor.open_documents import DocumentEdit, OpenDocument, Text


class LineWorkspace(Workspace):
    """Documents whose lines end as in the protocol: not at a form feed, nor at U+2028."""

    def _create_text_document(self, *arguments: Any, **named: Any) -> TextDocument:
        document = super()._create_text_document(*arguments, **named)
        document.__class__ = _Document
        return document


class _Document(TextDocument):
    @property
    def lines(self) -> Sequence[str]:
        return SourceMap(self.source).lines


def position(text: Text, line: int, column: int, codec: PositionCodec) -> types.Position:
    """A position, counted from 0; its line is limited to the existing ones."""
    if line >= len(text.lines):
        ends = text.lines[-1].endswith(("\n", "\r"))
        if ends or line > len(text.lines):
            return types.Position(len(text.lines), 0)
    line = min(line, len(text.lines) - 1)
    before = text.lines[line].rstrip("\r\n")[: max(column, 0)]
    return types.Position(line, codec.client_num_units(before))


def text_edit(text: Text, edit: DocumentEdit, codec: PositionCodec) -> types.TextEdit:
    start = position(text, edit.line, edit.column, codec)
    end = position(text, edit.end_line, edit.end_column, codec)
    return types.TextEdit(types.Range(start, end), edit.text)


def text_position(
    document: OpenDocument, where: Range, codec: PositionCodec
) -> tuple[Text, types.Range]:
    """The text that contains a finding, and the position there."""
    text, at = document.place(where)
    start = position(text, at.line - 1, at.column - 1, codec)
    return text, types.Range(start, position(text, at.end_line - 1, at.end_column - 1, codec))
