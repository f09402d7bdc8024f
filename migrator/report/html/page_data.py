"""Data for the page's script: an index of all files, and the text of each file with a finding.

Filters and the file tree use the index; a file's text is parsed when it is first shown.
Keys are short, and empty values are left out, because a run may have thousands of findings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from migrator.diagnostics import Diagnostic, Outcome, Safety, Severity
from migrator.formats import file_kinds
from migrator.registry import registry
from migrator.report.hunks import FilePart, Hunk, file_parts, hunks
from migrator.report.statistics import of_file
from migrator.runs.run_report import FileReport, Report

MANY_LINES = 5_000  # of a part of a file; of a longer one, only the context of changes is embedded
AROUND = 50

Json = dict[str, Any]


def index(report: Report, written: bool) -> tuple[Json, list[Json]]:
    """The index, and the content of `text_N` for each of its files (empty: nothing to show)."""
    messages = _Table()
    found = [_file(file, messages) for file in sorted(report.files, key=_in_tree)]
    codes = {d.code for f in report.files for d in f.result.diagnostics}
    rules = {code: _rule(code) for code in sorted(codes) if code in registry().rules}
    files = [entry for entry, _ in found]
    return (
        {
            "written": written,
            "rules": rules,
            "safeties": {str(s): s.words for s in (Safety.SAFE, Safety.UNSAFE)},
            "messages": messages.values,
            "files": files,
        },
        [text for _, text in found],
    )


def _in_tree(file: FileReport) -> list[tuple[bool, str]]:
    """Files in tree order: in each folder, subfolders first."""
    *folders, own = file.path.parts
    return [*((False, folder) for folder in folders), (True, own)]


class _Table:
    """Texts that many findings share, stored once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int | None:
        return self.numbers.setdefault(text, len(self.numbers)) if text else None

    @property
    def values(self) -> list[str]:
        return list(self.numbers)


def kind(diagnostic: Diagnostic) -> str:
    """The outcome, as named in the page's filter."""
    if diagnostic.severity is Severity.ERROR:
        return "failed"
    if diagnostic.severity is Severity.ADVICE:
        return "advice"
    if diagnostic.outcome is None:
        return "added"
    return "left" if diagnostic.outcome is Outcome.REPORTED else str(diagnostic.outcome)


def status(file: FileReport) -> str:
    """A file's overall status: the worst of failed, left, changed and clean."""
    if file.result.failed:
        return "failed"
    if any(d.outcome is Outcome.REPORTED for d in file.result.diagnostics):
        return "left"
    return "changed" if file.result.changed else "clean"


def name(path: Path) -> str:
    """A path as text; bytes that can't be decoded become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def _file(file: FileReport, messages: _Table) -> tuple[Json, Json]:
    path, result = file.path, file.result
    entry: Json = {"path": name(path), "status": status(file)}
    if not result.changed and not result.diagnostics:
        return entry, {}
    made = hunks(path.suffix, result)
    numbers = {diagnostic: n for n, diagnostic in reversed(list(enumerate(result.diagnostics)))}
    shown = [
        part
        for part in file_parts(path.suffix, result)
        if not part.of_notebook
        or part.before != part.after
        or any(d.range.cell == part.cell for d in result.diagnostics)
    ]
    work = of_file(file)
    entry |= _without_empty(
        python=file_kinds.line_kind(path) is None,
        changed=result.changed,
        notebook=any(part.of_notebook for part in shown),
        effort=work.effort and str(work.effort),
        automatic=round(work.automatic) if work.outcomes else None,
        notes=[_note(d, messages) for d in result.diagnostics],
        hunks=[_hunk(h, numbers) for h in made],
        parts=[{"cell": part.cell, "lines": len(part.before)} for part in shown],
    )
    before = [_text(part, made, result.diagnostics) for part in shown]
    return entry, {"before": before, "after": ["\n".join(h.after) for h in made]}


def _without_empty(**values: Any) -> Json:
    """Remove empty values; zero is not empty."""
    return {name: v for name, v in values.items() if v or (v == 0 and v is not False)}


def _note(diagnostic: Diagnostic, messages: _Table) -> Json:
    where = diagnostic.range
    return _without_empty(
        kind=kind(diagnostic),
        code=diagnostic.code,
        cell=where.cell or None,
        line=where.line,
        end=where.end_line if where.end_line != where.line else None,
        construct=diagnostic.construct,
        message=messages(diagnostic.message),
        why=messages(diagnostic.why),
        effort=diagnostic.effort and str(diagnostic.effort),
        safety=diagnostic.safety and str(diagnostic.safety),
    )


def _hunk(hunk: Hunk, numbers: dict[Diagnostic, int]) -> Json:
    return _without_empty(
        cell=hunk.cell or None,
        at=[hunk.start, hunk.end, hunk.new_start, hunk.new_end],
        by=[numbers[d] for d in hunk.diagnostics],
        label=hunk.label,
    )


def _text(
    part: FilePart, made: Iterable[Hunk], diagnostics: Iterable[Diagnostic]
) -> list[tuple[int, str]]:
    """The original lines, as pieces with the index of their first line: one piece, unless long."""
    count = len(part.before)
    if count <= MANY_LINES:
        return [(0, "\n".join(part.before))] if count else []
    places = [(h.start, h.end) for h in made if h.cell == part.cell]
    places += [(d.range.line - 1, d.range.line) for d in diagnostics if d.range.cell == part.cell]
    pieces: list[list[int]] = []
    for start, end in sorted(places):
        start, end = max(0, start - AROUND), min(count, end + AROUND)
        if pieces and start <= pieces[-1][1]:
            pieces[-1][1] = max(end, pieces[-1][1])
        else:
            pieces.append([start, end])
    return [(start, "\n".join(part.before[start:end])) for start, end in pieces]


def _rule(code: str) -> Json:
    rule = registry().rules[code]
    return {
        "name": rule.name,
        "summary": rule.summary,
        "why": " ".join(rule.why.split()),
        "safety": str(rule.safety),
        "effort": str(rule.effort),
        "references": list(rule.references),
    }
