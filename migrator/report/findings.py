"""A run's findings, place by place, for services that show them beside the code."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from migrator.diagnostics import Diagnostic, Effort, Outcome, Range, Safety, Severity
from migrator.files.discover import project_root
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds, notebook
from migrator.registry import registry
from migrator.report.hunks import Hunk, apply_hunks, file_parts, hunks, together
from migrator.runs.run_report import Delivery, FileReport, Report

_STDIN = Path("<stdin>")
_NUMBER = re.compile(r"\bline \d+")
_LINE = re.compile(r"\b((?:cell (\d+), )?(?<!\.py, )line )(\d+)\b")  # not of another file


@dataclass(frozen=True)
class LineRange:
    """Lines of a file, from 1; a notebook's are those of its JSON, and have no columns."""

    line: int
    end_line: int
    column: int = 0  # 0: unknown
    end_column: int = 0  # exclusive


@dataclass(frozen=True)
class ReportFinding:
    """One thing that a person, or this tool, should do or may want to do."""

    path: str  # from the top of the project, with slashes
    place: LineRange
    diagnostic: Diagnostic
    fingerprint: str  # stays the same if lines above are inserted or removed
    suppressed: bool = False
    hunks: tuple[Hunk, ...] = ()  # the hunks that it makes, maybe with others

    @property
    def code(self) -> str:
        return self.diagnostic.code

    @property
    def pending(self) -> bool:
        """Whether it is an edit that this tool will make."""
        return self.diagnostic.is_edit and not self.suppressed

    @property
    def message(self) -> str:
        """The finding, and what to do or to know about it."""
        d = self.diagnostic
        rule = registry().rules.get(d.code)
        said = d.message
        if self.pending:
            unsafe = d.why if d.safety is Safety.UNSAFE else ""
            said = "; ".join(dict.fromkeys(filter(None, (d.message, unsafe))))
            said = said or (rule.summary if rule else "")
            verb = "to be rewritten" if d.outcome else "to be added"
            said = f"{verb}: {said}" if said else verb
        return f"{d.construct}: {said}" if d.construct else said


def top(report: Report) -> Path:
    """The top of the project that contains the files: their paths are relative to it.

    For several projects, the folder that contains them all.
    """
    here = Path.cwd().resolve()
    folders = {resolved(file.path.parent) for file in report.files if file.path != _STDIN}
    tops = {project_root(folder, [here]) for folder in folders} or {here}
    try:
        return Path(os.path.commonpath(tops))
    except ValueError:  # several drives on Windows
        return min(tops)


def relative(path: Path, folder: Path) -> str:
    """A path as services expect it; links aren't resolved."""
    if path == _STDIN:
        return str(path)
    return Path(os.path.relpath(resolved(path.parent) / path.name, resolved(folder))).as_posix()


@dataclass(frozen=True)
class FileText:
    """A file as on the disk: the positions of diagnostics in it, and its pending edits."""

    file: FileReport
    written: bool = False  # the file holds the result

    @cached_property
    def content(self) -> bytes:
        result = self.file.result
        return result.source if self.written else result.original

    @cached_property
    def lines(self) -> list[str]:
        return [line.rstrip("\r") for line in self.content.decode("utf-8", "replace").split("\n")]

    @cached_property
    def every_hunk(self) -> list[Hunk]:
        return hunks(self.file.path.suffix, self.file.whole or self.file.result)

    @cached_property
    def hunks(self) -> list[Hunk]:
        """The hunks that the run reports, each with those that must be applied together with it."""
        if self.file.whole is None:
            return self.every_hunk
        told = [h for d in self.file.result.diagnostics for h in self.needed(d)]
        return [h for h in self.every_hunk if h in told]

    @cached_property
    def told(self) -> bytes:
        """The file with only these applied."""
        result, suffix = self.file.whole or self.file.result, self.file.path.suffix
        if len(self.hunks) == len(self.every_hunk):
            return result.source
        return apply_hunks(suffix, result, self.hunks)

    def needed(self, diagnostic: Diagnostic) -> list[Hunk]:
        return together(self.every_hunk, diagnostic)

    @property
    def _is_notebook(self) -> bool:
        return file_kinds.is_notebook(self.file.path)

    @cached_property
    def _notebook(self) -> notebook.Notebook | None:
        try:
            return notebook.read_notebook(self.content) if self._is_notebook else None
        except notebook.NotANotebook:
            return None

    def place(self, where: Range) -> LineRange:
        first, same = self._line(where.cell, where.line)
        last, same_end = self._line(where.cell, where.end_line)
        last = max(first, last)
        if self._notebook is not None:
            rows = [self._notebook.row(where.cell, n) if where.cell else 1 for n in (first, last)]
            return LineRange(rows[0], rows[1])
        if not (same and same_end):
            return LineRange(first, last)
        return LineRange(first, last, where.column, where.end_column)

    def now(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic with the file's current positions, also in its message."""
        where = diagnostic.range
        (line, same), (last, same_end) = (
            self._line(where.cell, n) for n in (where.line, where.end_line)
        )
        last = max(line, last)
        moved = replace(where, line=line, end_line=last)
        if not (same and same_end):
            column = self._column(where, line)
            moved = Range(line, column, last, column if line == last else 1, where.cell)

        def now(match: re.Match[str]) -> str:
            cell = int(match[2] or where.cell)
            return f"{match[1]}{self._line(cell, int(match[3]))[0]}"

        return replace(diagnostic, range=moved, message=_LINE.sub(now, diagnostic.message))

    def _line(self, cell: int, line: int) -> tuple[int, bool]:
        """The line that an original line has become, and whether it is unchanged."""
        moved = 0
        for hunk in self.hunks if self.written else ():
            if hunk.cell != cell:
                continue
            if hunk.start < line <= hunk.end:
                return self._in_hunk(hunk, line), False
            if hunk.end < line:
                moved = hunk.new_end - hunk.end
        return line + moved, True

    def _in_hunk(self, hunk: Hunk, line: int) -> int:
        """The line most similar to a changed one; it may have moved to another hunk."""
        near = min(hunk.new_start + line - hunk.start, max(hunk.new_end, hunk.new_start + 1))
        before = hunk.before[line - hunk.start - 1].strip()
        others = [h for h in self.hunks if h.cell == hunk.cell]
        for among, alike in (([hunk], 0.6), (others, 0.8)):
            rows = [
                (n, text.strip()) for h in among for n, text in enumerate(h.after, h.new_start + 1)
            ]
            if best := get_close_matches(before, [text for _, text in rows], 1, alike):
                return min((n for n, text in rows if text == best[0]), key=lambda n: abs(n - near))
        return near

    def _column(self, where: Range, line: int) -> int:
        """The column of a place's code in a changed line; otherwise the line's first code."""
        texts = zip(self._texts.get(where.cell, ([], [])), (where.line, line), strict=True)
        before, after = (lines[n - 1] if n <= len(lines) else "" for lines, n in texts)
        end = where.end_column - 1 if where.end_line == where.line else None
        text, earlier = before[where.column - 1 : end], before[: where.column - 1]
        found = after.find(text)
        for _ in range(earlier.count(text) if text else 0):
            found = max(after.find(text, found + 1), found)
        return 1 + (found if found >= 0 else len(after) - len(after.lstrip()))

    @cached_property
    def _texts(self) -> dict[int, tuple[list[str], list[str]]]:
        found = file_parts(self.file.path.suffix, self.file.result)
        return {part.cell: (part.before, part.after) for part in found}


def as_written(report: Report, *, edits: bool = True) -> Report:
    """The report of a run that has written files, with their current names and lines.

    Without `edits`, their lines stay the old ones, which takes less time.
    """
    files = []
    for file in report.files:
        text = FileText(file, written=True)
        now = tuple(d if d.is_edit and not edits else text.now(d) for d in file.result.diagnostics)
        path = report.written_to(file.path)
        files.append(replace(file, path=path, result=replace(file.result, diagnostics=now)))
    companions = {report.written_to(path): text for path, text in report.companions.items()}
    deliveries = [
        Delivery(
            each.what if isinstance(each.what, str) else report.written_to(each.what),
            tuple(map(report.written_to, each.named)),
        )
        for each in report.deliveries
    ]
    return replace(report, files=files, companions=companions, deliveries=deliveries)


def findings(report: Report, *, written: bool = False) -> list[ReportFinding]:
    """All findings: left, pending (unless it is `written`), advice or suppressed."""
    folder = top(report)
    found: list[ReportFinding] = []
    for file in report.files:
        found += _file_findings(file, relative(file.path, folder), written)
    return found


def _file_findings(file: FileReport, path: str, written: bool) -> Iterator[ReportFinding]:
    text = FileText(file, written)
    seen: Counter[tuple[str, ...]] = Counter()
    for diagnostic in file.result.diagnostics:
        suppressed = diagnostic.is_suppressed
        if diagnostic.outcome is Outcome.KEPT and not suppressed:
            continue
        if written and diagnostic.is_edit:
            continue
        added = diagnostic.is_edit and diagnostic.outcome is None  # where the insertion is
        where = diagnostic.touched[0] if added and diagnostic.touched else diagnostic.range
        place = text.place(where)
        line = "" if added or place.line > len(text.lines) else text.lines[place.line - 1]
        message = _NUMBER.sub("line", diagnostic.message)
        about = (path, diagnostic.code, diagnostic.construct, message, " ".join(line.split()))
        seen[about] += 1
        named = "\0".join((*about, str(seen[about])))
        fingerprint = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        own = tuple(h for h in text.hunks if diagnostic in h.diagnostics)
        diagnostic = text.now(diagnostic) if written else diagnostic
        yield ReportFinding(path, place, diagnostic, fingerprint, suppressed, own)


_EFFORTS = list(Effort)


def by_importance(found: Sequence[ReportFinding]) -> list[ReportFinding]:
    """Most important first, and one of each kind before a kind is repeated."""
    seen: Counter[tuple[str, str]] = Counter()
    ranks: dict[int, tuple[int, int, int]] = {}
    for number, finding in enumerate(found):
        same = finding.code, finding.diagnostic.message
        ranks[id(finding)] = (-_weight(finding), seen[same], number)
        seen[same] += 1
    return sorted(found, key=lambda finding: ranks[id(finding)])


def _weight(finding: ReportFinding) -> int:
    d = finding.diagnostic
    if d.severity is Severity.ERROR:
        return 20
    if d.outcome is Outcome.REPORTED:
        return 10 + (_EFFORTS.index(d.effort) if d.effort else 0)
    if finding.pending:
        return 5 if d.safety is Safety.UNSAFE else 4 if d.outcome and d.message else 3
    return 1
