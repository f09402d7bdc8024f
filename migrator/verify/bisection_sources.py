"""Source lines of a difference, and the edits that made them."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from migrator.diagnostics import Diagnostic
from migrator.pipeline.result import Result
from migrator.report.hunks import hunks

from .bisection import BisectedEdit, Bisection, TracePlace

# ---- sources -------------------------------------------------------------------------------------


def with_sources(
    found: Bisection,
    original: Path,
    migrated: Path,
    results: dict[str, Result],
    source: Path | None = None,
) -> Bisection:
    """The same bisection with the text of its lines and the edits that touch them.

    ``results``: the migration's results, by a file's path in the folders of both programs.
    ``source``: the migrated code, if ``original`` is an older version of it.
    """
    first, second = _read(found.original, original), _read(found.migrated, migrated)
    edits: list[BisectedEdit] = []
    above: list[BisectedEdit] = []  # edited by hand
    lines: dict[str, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for number, place, folder in ((0, first, original), (1, second, migrated)):
        for line in (place.line, place.made) if place is not None else ():
            name, _, at = line.rpartition(":")
            if name:
                lines[name][number].update(_statement(folder / name, int(at)))
    for name, (before, after) in lines.items():
        result = results.get(name)
        if source is not None:
            by_hand = _changes(original / name, source / name)
            made = hunks(Path(name).suffix, result) if result is not None else []
            was = _across(after, [(h.new_start, h.new_end, h.start, h.end) for h in made])
            above += [edit for span, edit in by_hand if span[0] < max(before, default=0)]
            edits += [edit for span, edit in by_hand if _touches(span, before, was)]
            before = was | _across(before, [span for span, _ in by_hand])
        if result is not None:
            edits += edits_of(Path(name).suffix, result, before, after)
    return replace(found, original=first, migrated=second, edits=edits or above[-1:])


def edits_of(suffix: str, result: Result, before: set[int], after: set[int]) -> list[BisectedEdit]:
    """The migration's edits and diagnostics for these lines of the original and of the result.

    Lines are counted from 1.
    """
    found = []
    shown: set[Diagnostic] = set()
    for hunk in hunks(suffix, result):
        old = before & set(range(hunk.start + 1, hunk.end + 1))
        new = after & set(range(hunk.new_start + 1, hunk.new_end + 1))
        if old or new:
            shown.update(hunk.diagnostics)
            messages = [d.message or d.construct for d in hunk.diagnostics] or [hunk.label]
            found.append(BisectedEdit(hunk.codes, messages, list(hunk.before), list(hunk.after)))
    for diagnostic in result.diagnostics:
        where = diagnostic.range
        if diagnostic not in shown and before & set(range(where.line, where.end_line + 1)):
            found.append(
                BisectedEdit(
                    [diagnostic.code], [diagnostic.message or diagnostic.construct], [], []
                )
            )
    return found


Span = tuple[int, int, int, int]  # lines, and their replacements, as in a Hunk


def _changes(before: Path, after: Path) -> list[tuple[Span, BisectedEdit]]:
    """Manual changes to a file."""
    old, new, message = _lines(before), _lines(after), "changed since the golden was recorded: line"
    return [
        ((i, j, k, n), BisectedEdit([], [f"{message} {k + 1}"], old[i:j], new[k:n]))
        for kind, i, j, k, n in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def _touches(span: Span, before: set[int], after: set[int]) -> bool:
    """Whether a change touches one of these lines, in their old or new version."""
    start, end, new_start, new_end = span
    old, new = range(start + 1, end + 1), range(new_start + 1, new_end + 1)
    return not (before.isdisjoint(old) and after.isdisjoint(new))


def _across(lines: set[int], spans: list[Span]) -> set[int]:
    """The new positions of lines after these changes; for a changed line, all its replacements."""
    found: set[int] = set()
    for line in lines:
        moved = 0
        for start, end, new_start, new_end in spans:
            if start < line <= end:
                found.update(range(new_start + 1, new_end + 1))
                break
            if end < line:
                moved = new_end - end
        else:
            found.add(line + moved)
    return found


def _read(place: TracePlace | None, folder: Path) -> TracePlace | None:
    if place is None:
        return None
    return replace(place, text=_text(folder, place.line), made_text=_text(folder, place.made))


def _text(folder: Path, line: str) -> str:
    name, _, number = line.rpartition(":")
    lines = _lines(folder / name) if name else []
    return lines[int(number) - 1].strip() if name and int(number) <= len(lines) else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split("\n")
    except OSError:
        return []


def _statement(path: Path, line: int) -> range:
    """The lines of the statement that contains a line; for a compound statement, its header."""
    chosen = range(line, line + 1)
    try:
        tree = ast.parse("\n".join(_lines(path)))
    except (SyntaxError, ValueError):
        return chosen
    for node in ast.walk(tree):  # outer statements first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or line
            if line <= end:
                chosen = range(node.lineno, end + 1)
    return chosen
