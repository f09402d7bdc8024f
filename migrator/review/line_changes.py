"""One file: what was there, what the tool makes of it, and what is there now, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from migrator.diagnostics import Diagnostic, Safety
from migrator.formats import file_kinds, notebook
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.report.hunks import Explained, Hunk, file_parts, hunks


class ChangeKind(StrEnum):
    """What lines of a change are; the first ask for the most attention."""

    DIFFERENT = "different"  # the tool makes something else of them
    MISSING = "missing"  # the tool would have changed them
    BY_HAND = "by hand"  # the tool would not have changed them
    MADE = "made"  # exactly what the tool makes


@dataclass(frozen=True)
class LineChange(Explained):
    """Lines side by side. `line` is that of what is there now, from 1."""

    kind: ChangeKind
    cell: int
    line: int
    before: tuple[str, ...]
    tool: tuple[str, ...]  # what the tool makes of `before`
    after: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...] = ()  # of the tool's edits
    label: str = ""  # what they are without any: "imports", "comments" or "metadata"

    @property
    def safety(self) -> Safety | None:
        return None if self.kind is ChangeKind.BY_HAND else super().safety

    @property
    def why(self) -> str:
        """What the tool's edits change or cost, or what they are."""
        return "; ".join(dict.fromkeys(filter(None, map(_why, self.diagnostics))))

    @property
    def risk(self) -> int:
        """What to look at first: the least."""
        return 2 * list(ChangeKind).index(self.kind) + (self.safety is not Safety.UNSAFE)


def _why(diagnostic: Diagnostic) -> str:
    if diagnostic.safety is Safety.UNSAFE:
        return diagnostic.why
    rule = registry().rules.get(diagnostic.code)
    return diagnostic.message or (rule.summary if rule else "")


def compare(suffix: str, result: Result, now: bytes) -> list[LineChange]:
    """Everything that differs between a file's old text and what it is `now`, or should differ.

    `result` is what the tool makes of the old text.
    """
    if suffix == file_kinds.NOTEBOOK and not _same_cells(result.source, now):
        suffix = ""  # line by line of the file
    made = hunks(suffix, result)
    rest = Result(result.source, now)
    lines = {part.cell: (part.before, part.after) for part in file_parts(suffix, rest)}
    old = {part.cell: part.before for part in file_parts(suffix, result)}
    for cell in [h.cell for h in made if h.cell not in lines]:  # what notebooks say of themselves
        after = next(part.after for part in file_parts(suffix, result) if part.cell == cell)
        lines[cell] = (after, after)
    return [
        change
        for cell, (tool, after) in sorted(lines.items())
        for change in _line_changes(
            [h for h in made if h.cell == cell], old.get(cell, tool), tool, after, cell
        )
    ]


def _same_cells(first: bytes, second: bytes) -> bool:
    try:
        cells = [[c.number for c in notebook.read_notebook(text).cells] for text in (first, second)]
    except notebook.NotANotebook:
        return False
    return cells[0] == cells[1]


@dataclass(frozen=True)
class _RestOfFile:
    """Lines of the tool's text that are not what is there now."""

    start: int
    end: int
    first: int  # of what is there now
    last: int


def _line_changes(
    made: Sequence[Hunk], old: Sequence[str], tool: Sequence[str], now: Sequence[str], cell: int
) -> Iterator[LineChange]:
    codes = SequenceMatcher(None, tool, now, autojunk=False).get_opcodes()
    rest = [_RestOfFile(*code[1:]) for code in codes if code[0] != "equal"]
    for group, others in _groups(made, rest):
        bounds = [(h.new_start, h.new_end) for h in group] + [(r.start, r.end) for r in others]
        start, end = min(b[0] for b in bounds), max(b[1] for b in bounds)
        from_old = start - sum(_more(h) for h in made if h not in group and h.new_end <= start)
        to_old = from_old + end - start - sum(map(_more, group))
        first = start + sum(_more(r) for r in rest if r not in others and r.end <= start)
        last = first + end - start + sum(map(_more, others))
        before, after = tuple(old[from_old:to_old]), tuple(now[first:last])
        if not others:
            kind = ChangeKind.MADE
        elif not group:
            kind = ChangeKind.BY_HAND
        else:
            kind = ChangeKind.MISSING if before == after else ChangeKind.DIFFERENT
        diagnostics = tuple(dict.fromkeys(d for h in group for d in h.diagnostics))
        label = next((h.label for h in group if h.label), "")
        yield LineChange(
            kind, cell, first + 1, before, tuple(tool[start:end]), after, diagnostics, label
        )


def _more(lines: Hunk | _RestOfFile) -> int:
    """How many lines more there are behind it."""
    if isinstance(lines, Hunk):
        return (lines.new_end - lines.new_start) - (lines.end - lines.start)
    return (lines.last - lines.first) - (lines.end - lines.start)


def _groups(
    made: Sequence[Hunk], rest: Sequence[_RestOfFile]
) -> list[tuple[list[Hunk], list[_RestOfFile]]]:
    """Edits of the tool with the differences that meet them, in the order of the lines."""
    groups: list[tuple[list[Hunk], list[_RestOfFile]]] = [([hunk], []) for hunk in made]
    for other in rest:
        meeting = [g for g in groups if any(_meet(hunk, other) for hunk in g[0])]
        groups = [g for g in groups if g not in meeting]
        groups.append(
            ([h for g in meeting for h in g[0]], [*(r for g in meeting for r in g[1]), other])
        )
    return sorted(groups, key=lambda g: min([h.new_start for h in g[0]] + [r.start for r in g[1]]))


def _meet(hunk: Hunk, rest: _RestOfFile) -> bool:
    start, end = hunk.new_start, hunk.new_end
    if start == end and rest.start == rest.end:
        return start == rest.start
    if start == end:
        return rest.start < start < rest.end
    if rest.start == rest.end:
        return start < rest.start < end
    return start < rest.end and rest.start < end
