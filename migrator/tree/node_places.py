"""Where the nodes of the `ast` are in the LibCST tree: by offset, from the round-trip generation.

Generating the code once proves that the file survives a round trip and yields the offsets for
free; LibCST's own position provider costs twice the parse (measured, 1.9).
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState

from migrator.diagnostics import SourceMap
from migrator.edits import (
    Edit,
    EditCall,
    Insert,
    Replace,
    ReplaceStatement,
    SetString,
    Unwrap,
    Wrap,
)
from migrator.tree.form_feeds import FormFeeds
from migrator.tree.partial_source import Abridged, Span


class UnplacedEdit(Exception):
    """An edit whose node could not be found in the LibCST tree (inside an f-string, usually)."""

    def __init__(self, edits: list[Edit]) -> None:
        super().__init__("source position could not be matched")
        self.edits = edits


class _Span:
    """Context manager that notes where a node's code starts and ends, in tokens."""

    __slots__ = ("end", "node", "start", "tokens")

    def __init__(self, node: cst.CSTNode, tokens: list[str]) -> None:
        self.node, self.tokens = node, tokens
        self.start = self.end = 0

    def __enter__(self) -> None:
        self.start = len(self.tokens)

    def __exit__(self, *exc: object) -> None:
        self.end = len(self.tokens)


class _RecordingState(CodegenState):
    """Code generation that remembers the span of each expression and statement."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.spans: list[_Span] = []

    def record_syntactic_position(self, node: Any, **kwargs: Any) -> Any:
        span = _Span(node, self.tokens)
        self.spans.append(span)
        return span


class Tree:
    """A LibCST module with the offsets of its nodes."""

    def __init__(self, text: str, kept: Sequence[Span] = ()) -> None:
        """`kept` are the spans of statements that it need not hold."""
        # LibCST 1.9 loses blanks behind the last line end, and line ends of old Macs there
        self.tail = _TAIL.search(text)[0]  # type: ignore[index]
        self._abridged = Abridged(text.removesuffix(self.tail), kept)
        feeds = FormFeeds(self._abridged.text)
        self._feeds, body = feeds, feeds.marked
        self.module = cst.parse_module(body)
        state = _RecordingState(self.module)
        self.module._codegen(state)
        self.round_trips = "".join(state.tokens) == body
        offsets = [0]
        for token in state.tokens:
            offsets.append(offsets[-1] + len(token))
        last = len(offsets) - 1  # code generation drops the final newline token it does not need
        offsets = [self._abridged.offset(feeds.offset(offset)) for offset in offsets]
        self.spans = [
            (offsets[min(s.start, last)], offsets[min(s.end, last)], s.node) for s in state.spans
        ]

    def text(self, module: cst.Module) -> str:
        """The source of this tree after a change."""
        return self._abridged.restored(self._feeds.unmarked(module.code)) + self.tail


_TAIL = re.compile(r"(?:\r[\r \t\f]*|(?<=\n)[ \t\f]+)?\Z")
_STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
_PRUNED = (cst.BaseExpression, cst.BaseStatement, cst.BaseSmallStatement)  # spans hold all of them


class NodePlaces:
    """Which LibCST nodes the edits and their holes are, and which branches lead there."""

    def __init__(self, tree: Tree, source: SourceMap) -> None:
        self.source = source
        self.body = tree.module.body
        self.expressions: dict[tuple[int, int], cst.CSTNode] = {}
        self.statements: dict[int, cst.CSTNode] = {}
        self.lines: list[cst.CSTNode] = []  # whole statements, in source order
        self.line_starts: list[int] = []
        self.span_of: dict[int, tuple[int, int]] = {}
        for start, end, node in tree.spans:
            self.span_of[id(node)] = (start, end)
            if isinstance(node, cst.BaseExpression):
                self.expressions.setdefault((start, end), node)
            elif isinstance(node, _STATEMENTS):
                self.statements.setdefault(start, node)
            if isinstance(node, cst.BaseStatement):
                self.lines.append(node)
                self.line_starts.append(start)
        self.edits: dict[int, Edit] = {}
        self.inserts: dict[int, list[Insert]] = {}  # by id of the top-level LibCST statement
        self.wrapped: dict[int, Wrap] = {}  # by id of each line in a block that is added
        self.last_in: dict[Wrap, cst.CSTNode] = {}
        self.wanted: list[int] = []  # offsets that the pass must reach
        self.holes: dict[int, int] = {}  # id of a LibCST node that stays -> id of the ast node

    def expression(self, node: ast.AST) -> cst.CSTNode | None:
        start, end = self.source.span(node)
        if isinstance(node, ast.Tuple) and self.source.text[start] == "(" and node.elts:
            inside = self.source.text[start + 1 : end - 1]  # LibCST's spans are without brackets
            start += 1 + len(inside) - len(inside.lstrip())
            end = start + len(inside.strip())
            return self._tuple(start, end) or self._tuple(*self.source.span(node))
        return self.expressions.get((start, end))

    def _tuple(self, start: int, end: int) -> cst.CSTNode | None:
        found = self.expressions.get((start, end))
        return found if isinstance(found, cst.Tuple) else None

    def add(self, edit: Edit) -> bool:
        if isinstance(edit, Insert):
            return self._add_insert(edit)
        if isinstance(edit, Wrap):
            return self._add_wrap(edit)
        node = edit.node
        if isinstance(node, ast.stmt):
            found = self.statements.get(self.source.span(node)[0])
            if isinstance(edit, Unwrap) and not isinstance(found, cst.With | cst.If):
                return False
        else:
            found = self.expression(node)
        if found is None:
            return False
        if isinstance(edit, EditCall) and not isinstance(found, cst.Call):
            return False
        if isinstance(edit, SetString) and not isinstance(found, cst.SimpleString):
            return False
        holes = list(edit.holes.values()) if isinstance(edit, Replace | ReplaceStatement) else []
        for hole in holes:
            kept = self.expression(hole)
            if kept is None:
                return False
            self.holes[id(kept)] = id(hole)
        if self.edits.setdefault(id(found), edit) is not edit:
            return False  # a node is changed once
        for part in (node, *holes):
            offset = self.source.span(part)[0]
            at = bisect_left(self.wanted, offset)
            self.wanted.insert(at, offset)
        return True

    def _add_insert(self, edit: Insert) -> bool:
        """Inserts hang on the statement of their anchor (in LibCST, a whole line)."""
        if edit.anchor is None:
            line: cst.CSTNode | None = self.body[0] if self.body else None
            edit = replace(edit, before=True)
        else:
            line = self._line(edit.anchor)
        if line is not None:
            start = self.span_of[id(line)][0]
            self.wanted.insert(bisect_left(self.wanted, start), start)
        self.inserts.setdefault(id(line) if line is not None else 0, []).append(edit)
        return True

    def _add_wrap(self, edit: Wrap) -> bool:
        lines = [self._line(statement) for statement in edit.statements]
        if any(id(line) in self.wrapped for line in lines):
            return False
        for line, statement in zip(lines, edit.statements, strict=True):
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) > 1:
                return False
            if self.span_of[id(line)][0] != self.source.span(statement)[0]:
                return False
            self.wrapped[id(line)] = edit
            start = self.span_of[id(line)][0]
            self.wanted.insert(bisect_left(self.wanted, start), start)
        self.last_in[edit] = lines[-1]
        return True

    def _line(self, anchor: ast.stmt) -> cst.CSTNode:
        """The line of a simple statement (`import os; import torch` is one), or the block."""
        at = self.source.span(anchor)[0]
        last = bisect_right(self.line_starts, at) - 1
        return self.lines[last]

    def leads_to_edit(self, node: cst.CSTNode) -> bool:
        span = self.span_of.get(id(node))
        if span is None or not isinstance(node, _PRUNED) or getattr(node, "decorators", None):
            return True  # the span of a definition starts behind its decorators
        at = bisect_left(self.wanted, span[0])
        return at < len(self.wanted) and self.wanted[at] <= span[1]
