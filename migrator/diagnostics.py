"""Diagnostics: what the tool did with each GPU construct, and why."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"  # the file could not be processed
    WARNING = "warning"  # a GPU construct is left to change by hand
    ADVICE = "advice"  # nothing is wrong, but a TPU expert would mention it
    INFO = "info"  # a construct that was rewritten, or that is right as it stands


class Outcome(StrEnum):
    REWRITTEN = "rewritten"
    KEPT = "kept"
    REPORTED = "reported"


class Safety(StrEnum):
    """How far an edit can be trusted (ruff's and rustfix's "applicability")."""

    SAFE = "safe"
    UNSAFE = "unsafe"  # applied with --unsafe only
    DISPLAY_ONLY = "display-only"  # never applied

    @property
    def words(self) -> str:
        """What it says of an edit, the same in every report."""
        return _SAFETIES[self]


_SAFETIES = {
    Safety.SAFE: "same meaning, within the documented tolerance",
    Safety.UNSAFE: "may change results",
    Safety.DISPLAY_ONLY: "not made, only shown",
}


class Effort(StrEnum):
    """What a construct that is left takes a person, from the least to the most."""

    MINUTES = "minutes"  # look at it, and change a line or nothing
    HOURS = "hours"  # the code around it has to be understood and changed
    REWRITE = "rewrite"  # what it does has to be written anew: kernels, extensions


@dataclass(frozen=True, order=True)
class Range:
    """Lines and columns from 1, columns in characters; the end is exclusive.

    ``cell`` is that of a notebook, counted from 1 over all its cells; 0: a file of source.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    cell: int = 0

    def __str__(self) -> str:
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{cell}{self.line}:{self.column}"


def first_of(words: Sequence[str], most: int) -> str:
    """The first of several, and how many are left: "a, b and 3 more"."""
    rest = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + rest


START = Range(1, 1, 1, 1)
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    """Lines, with their ends, as Python's tokenizer counts them.

    Form feeds and U+2028 end none, as they would for `str.splitlines`.
    """
    return _LINE.findall(text)


SUPPRESSED = "suppressed by a comment"  # why a construct is kept that its author wants kept


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One finding. `outcome` is None for advice and errors, which are not about a construct."""

    range: Range
    code: str
    severity: Severity
    message: str
    outcome: Outcome | None = None
    construct: str = ""  # the source text that was found, shortened
    # Of what was rewritten, or would be with --unsafe; and why it is so.
    safety: Safety | None = field(default=None, compare=False)
    why: str = field(default="", compare=False)
    effort: Effort | None = field(default=None, compare=False)  # of what is left
    # Where the source changes for it; a range of no width is where something is put in.
    touched: tuple[Range, ...] = field(default=(), compare=False)
    trace: str = field(default="", compare=False)  # of an internal error
    name: str = field(default="", compare=False)  # what a construct was found by

    @property
    def is_edit(self) -> bool:
        """Whether the code changes for it: a construct that is rewritten, or the set-up."""
        added = self.outcome is None and self.severity is Severity.INFO
        return added or self.outcome is Outcome.REWRITTEN

    @property
    def is_suppressed(self) -> bool:
        """Whether a comment keeps the construct."""
        return self.outcome is Outcome.KEPT and self.message == SUPPRESSED


def shortened(text: str) -> str:
    """Source text as a diagnostic shows it: on one line, and not all of it."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"


class SourceMap:
    """Positions of `ast` nodes in characters: `ast` itself counts UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = lines_of(text) or [""]
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def offset(self, line: int, byte_column: int) -> int:
        """The character offset of an `ast` position (line from 1, column in UTF-8 bytes)."""
        source = self.lines[line - 1] if line <= len(self.lines) else ""
        if not source.isascii():
            byte_column = len(source.encode()[:byte_column].decode(errors="ignore"))
        return self.starts[line - 1] + byte_column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Start and end offsets of a node, in characters."""
        return (
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def range(self, node: ast.AST) -> Range:
        start, end = self.span(node)
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return Range(
            line, start - self.starts[line - 1] + 1, end_line, end - self.starts[end_line - 1] + 1
        )

    def code(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]
