"""What LibCST has to read of a file: the statements that change, and short names for all others.

LibCST takes ten times as long as the rest of a migration takes for the same lines, and most lines
stay as they are. So it gets a text in which a name stands for each run of statements that no edit
concerns, and what it makes of that gets these statements back, byte for byte.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from migrator.diagnostics import SourceMap
from migrator.edits import (
    AddBranch,
    Delete,
    Edit,
    Insert,
    Replace,
    ReplaceStatement,
    Unwrap,
    Wrap,
)

Span = tuple[int, int]


class Abridged:
    """A text in which names stand for some spans of another."""

    def __init__(self, text: str, spans: Sequence[Span] = ()) -> None:
        self._kept = [text[start:end] for start, end in spans]
        self._mark = "kept"
        while self._mark in text:
            self._mark += "_"
        parts: list[str] = []
        self._behind = [0]  # offsets behind the names, here and in the whole text
        self._whole = [0]
        at = length = 0
        for number, (start, end) in enumerate(spans):
            name = f"{self._mark}{number}_"
            parts += [text[at:start], name]
            length += start - at + len(name)
            at = end
            self._behind.append(length)
            self._whole.append(end)
        self.text = "".join([*parts, text[at:]])
        self._starts = [start for start, _ in spans]

    def offset(self, offset: int) -> int:
        """The offset in the whole text of one in the abridged text."""
        last = bisect_right(self._behind, offset) - 1
        found = self._whole[last] + offset - self._behind[last]
        return min(found, self._starts[last]) if last < len(self._starts) else found

    def restored(self, text: str) -> str:
        """A text with the statements in the place of their names."""
        if not self._kept:
            return text
        name = re.compile(rf"{self._mark}(\d+)_")
        return name.sub(lambda found: self._kept[int(found[1])], text)


def unconcerned(
    tree: ast.Module,
    parents: Mapping[ast.AST, ast.AST],
    source: SourceMap,
    edits: Iterable[Edit],
) -> list[Span]:
    """The runs of statements in which nothing changes, and with which nothing is moved."""
    if "\r" in source.text or "\f" in source.text:  # what LibCST takes for usual may hang on these
        return []
    touched, whole = _touched(tree, parents, edits)
    found: list[Span] = []
    blocks: list[Sequence[ast.stmt]] = [tree.body]
    indented = False  # LibCST indents what is new as the first block is indented
    while blocks:
        run: Span | None = None
        for statement in blocks.pop():
            span = _span(source, statement)
            inner = [*_blocks(statement)]
            first_block = not indented and any(_is_on_lines(source, block) for block in inner)
            indented = indented or first_block
            if first_block or span is None or statement in touched:
                found += [run] if run is not None else ()
                run = None
                blocks += inner if statement not in whole else ()
            else:
                run = (run[0] if run is not None else span[0], span[1])
        found += [run] if run is not None else ()
    return sorted(span for span in found if "\n" in source.text[slice(*span)])


def _touched(
    tree: ast.Module, parents: Mapping[ast.AST, ast.AST], edits: Iterable[Edit]
) -> tuple[set[ast.AST], set[ast.AST]]:
    """Nodes that an edit is in, and statements of which it needs all that is in them."""
    concerned: list[ast.AST] = []
    whole: set[ast.AST] = set()
    for edit in edits:
        match edit:
            case Insert():
                concerned += [edit.anchor] if edit.anchor is not None else tree.body[:1]
                continue
            case Delete() | Unwrap() | AddBranch():
                whole.add(edit.node)
            case Replace() | ReplaceStatement():
                concerned += edit.holes.values()
            case Wrap():
                concerned += edit.statements
        concerned.append(edit.node)
    touched: set[ast.AST] = set()
    for node in (*concerned, *whole):
        at: ast.AST | None = node
        while at is not None and at not in touched:
            touched.add(at)
            at = parents.get(at)
    return touched, whole


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _is_on_lines(source: SourceMap, block: Sequence[ast.stmt]) -> bool:
    """Whether a block is indented, and not behind its colon."""
    return not source.lines[block[0].lineno - 1][: block[0].col_offset].strip()


_END = re.compile(r"[ \t]*(?:#.*)?(?:\n|\Z)")
_LINES_BELOW = re.compile(r"(?:[ \t]*(?:#.*)?\n)*")


def _span(source: SourceMap, statement: ast.stmt) -> Span | None:
    """Where a statement is, from its decorators on; None where a name cannot stand for it.

    That is where it shares a line with another, where it is an `elif`, and where lines below it,
    which are comments or hold blanks, are a part of its last block.
    """
    decorators = getattr(statement, "decorator_list", ())
    line = min(statement.lineno, *(each.lineno for each in decorators), statement.lineno)
    indentation = source.lines[line - 1]
    column = len(indentation) - len(indentation.lstrip(" \t"))
    start, end = source.starts[line - 1] + column, source.span(statement)[1]
    text = source.text
    rest = _END.match(text, end)
    if not decorators and source.span(statement)[0] != start:
        return None
    if rest is None or text.startswith("elif", start):
        return None
    below = _LINES_BELOW.match(text, rest.end())
    for other in below[0].splitlines() if below is not None else ():
        if len(other) - len(other.lstrip(" \t")) > column:
            return None
    return start, end
