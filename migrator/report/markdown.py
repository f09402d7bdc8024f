"""Markdown for a comment on a pull request, or for a job summary: what needs review comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.diagnostics import Diagnostic, Effort, Outcome, Safety
from migrator.registry import registry
from migrator.report import View
from migrator.report.findings import FileText, as_written, relative, top
from migrator.report.hunks import Hunk, file_parts
from migrator.report.markup import Page, code, difference, fitting, prose
from migrator.report.statistics import (
    NO_PROGRAM,
    REPORTED,
    count_noun,
    of_file,
    of_project,
    untried,
)
from migrator.report.staying import Staying, staying
from migrator.runs.run_report import WHEEL, FileReport, Report

MARK = "<!-- tpu-migrate -->"  # used to find the comment again
_ROWS = 20
_CONTEXT = 2
_EFFORTS = list(Effort)


@dataclass(frozen=True)
class _Edit:
    path: str
    hunk: Hunk
    line: int
    above: Sequence[str]

    @property
    def risk(self) -> int:
        """Sort key: edits that may change results first, then those with a cost, then the rest."""
        if self.hunk.safety is Safety.UNSAFE:
            return 3
        if self.hunk.label:
            return 0
        made = [d for d in self.hunk.diagnostics if d.outcome]
        return 2 if any(d.message or len(d.touched) > 2 for d in made) else 1


def render(report: Report, view: View) -> str:
    """A table, the edits from the riskiest, remaining manual work, and advice, folded."""
    edits = sorted(_edits(report), key=lambda e: -e.risk)
    risky = [_edit_text(e) for e in edits if e.risk > 1]
    others = [_edit_text(e) for e in edits if e.risk <= 1]
    now = as_written(report, edits=False) if view.written else report
    left = _left(now)
    advice = [_bullet(path, diagnostics) for path, diagnostics in _grouped(now, now.advice)]
    page = Page([MARK, _title(report, view), *_errors(report), *_table(report, view)])
    page.add("Review these changes first" if others else "Changes", risky, 0.5 if left else 0.75)
    page.add(REPORTED, left, 0.75 if others or advice else 1)
    more = "more change" if risky else "change"
    page.add(count_noun(len(others), more), others, 0.75, fold=True)
    page.add(f"Advice ({len(report.advice)})", advice, 1, fold=True)
    page.add("Imports", [f"* {prose(line)}" for line in untried(report)], 1, fold=True)
    return page.text


def _title(report: Report, view: View) -> str:
    files = count_noun(len(report.changed), "file")
    verb = "changed" if view.written else "would change"
    left = report.count(Outcome.REPORTED)
    words = [f"{files} {verb}" if report.changed else "nothing to change"]
    if left:
        words.append(f"{count_noun(left, 'construct')} to change by hand")
    target = f" for {code(report.target)}" if report.target else ""
    return f"### tpu-migrate{target}: {', '.join(words)}"


def _errors(report: Report) -> list[str]:
    folder = top(report)
    lines = [f"* {prose(error)}" for error in report.errors]
    lines += [
        f"* {code(f'{relative(path, folder)}:{d.range}')} {prose(d.message)}"
        for path, d in report.failures
    ]
    body = fitting(lines, 6000, "* … and {} more")
    return ["#### Not processed", body.replace("\n\n", "\n")] if lines else []


def _table(report: Report, view: View) -> list[str]:
    """Files with changes or remaining work, those with the most effort first."""
    folder = top(report)
    files = [f for f in report.files if f.result.changed or of_file(f).reported]
    if not files:
        return [f"* {prose(note)}" for note in report.notes]
    files.sort(key=_most, reverse=True)
    rows = [
        f"| file | rewritten | {Safety.UNSAFE.words} | left | effort |",
        "|---|---:|---:|---:|---|",
    ]
    for file in files[:_ROWS]:
        rows.append(f"| {code(relative(file.path, folder)[-300:])} | {_counts(file)} |")
    if len(files) > _ROWS:
        rows.append(f"| … and {len(files) - _ROWS} more | | | | |")
    work = of_project(report)
    unsafe = sum(map(_unsafe, report.files))
    effort = str(work.effort or "")
    if len(files) > 1:
        rows.append(
            f"| **all {len(files)}** | {work.outcomes[Outcome.REWRITTEN]:,} | {unsafe or ''} "
            f"| {work.reported or ''} | {effort} |"
        )
    notes = [prose(note) for note in report.notes]
    if work.outcomes[Outcome.REWRITTEN]:
        but = f", but those marked **{Safety.UNSAFE.words}**" if unsafe else ""
        notes.append(f"All rewrites are safe ({Safety.SAFE.words}){but}.")
    notes += [prose(delivery.said()) for delivery in report.deliveries]
    if report.runtime is not None and not report.deliveries:
        place = relative(report.runtime, folder) + "/" * (report.runtime.suffix != WHEEL)
        verb = "was" if view.written else "would be"
        notes.append(f"{code(place)}, the runtime of the migrated code, {verb} written.")
    if report.lacks_program:
        notes.append(prose(NO_PROGRAM))
    if report.unsafe:
        codes = ", ".join(f"{c} ×{n}" if n > 1 else c for c, n in sorted(report.unsafe.items()))
        notes.append(
            f"{code('--unsafe')} would rewrite more, which {Safety.UNSAFE.words}: {codes}."
        )
    return ["\n".join(rows), *notes]


def _most(file: FileReport) -> tuple[int, int, int]:
    work = of_file(file)
    effort = _EFFORTS.index(work.effort) + 1 if work.effort else 0
    return effort, _unsafe(file), work.reported


def _counts(file: FileReport) -> str:
    work = of_file(file)
    numbers = (work.outcomes[Outcome.REWRITTEN], _unsafe(file), work.reported)
    return " | ".join([*(str(n or "") for n in numbers), str(work.effort or "")])


def _unsafe(file: FileReport) -> int:
    return sum(
        d.outcome is Outcome.REWRITTEN and d.safety is Safety.UNSAFE
        for d in file.result.diagnostics
    )


# ---- edits ---------------------------------------------------------------------------------------


def _edits(report: Report) -> list[_Edit]:
    folder = top(report)
    found = []
    for file in report.changed:
        before = {p.cell: p.before for p in file_parts(file.path.suffix, file.result)}
        for hunk in FileText(file).hunks:
            above = before[hunk.cell][max(hunk.start - _CONTEXT, 0) : hunk.start]
            found.append(_Edit(relative(file.path, folder), hunk, hunk.start + 1, above))
    return found


def _edit_text(edit: _Edit) -> str:
    hunk = edit.hunk
    why = [d.why if d.safety is Safety.UNSAFE else d.message for d in hunk.diagnostics]
    rule = registry().rules.get(hunk.codes[0]) if len(hunk.codes) == 1 else None
    said = "; ".join(prose(w) for w in dict.fromkeys(filter(None, why)))
    said = said or (prose(rule.summary) if rule else "")
    unsafe = f" **{Safety.UNSAFE.words}**" * (hunk.safety is Safety.UNSAFE)
    first = f"{place_link(edit.path, hunk.cell, edit.line)} {hunk.name}{unsafe}"
    first += f": {said}" if said else ""
    return f"{first}\n{difference(hunk.before, hunk.after, edit.above)}"


def place_link(path: str, cell: int, line: int) -> str:
    return code(f"{path}:{f'cell {cell}:' if cell else ''}{line}")


# ---- what is left --------------------------------------------------------------------------------


def _left(report: Report) -> list[str]:
    """A paragraph for each reason in a file, those with the most effort first."""
    programs, others = staying(report)
    grouped = _grouped(report, others)
    grouped.sort(key=lambda item: -_effort(item[1][0]))
    folder = top(report)
    return [
        *(_staying(program, folder) for program in programs),
        *(_bullet(path, diagnostics) for path, diagnostics in grouped),
    ]


def _staying(program: Staying, folder: Path) -> str:
    """A program that stays, with the lines in the way."""
    first, *more = (
        f"{code(f'{relative(o.path, folder)}:{o.line}')} {prose(o.reason)}"
        for o in program.obstacles
    )
    also = f" (also {'; '.join(more[:5])}{'; …' if len(more) > 5 else ''})" if more else ""
    head = f"* A program stays as it is: {first} {program.keeps}{also}."
    return f"{head} {prose(program.furthest)}."


def _effort(diagnostic: Diagnostic) -> int:
    return _EFFORTS.index(diagnostic.effort) if diagnostic.effort else 0


def _grouped(
    report: Report, found: Sequence[tuple[object, Diagnostic]]
) -> list[tuple[str, list[Diagnostic]]]:
    folder = top(report)
    names = {id(f.path): relative(f.path, folder) for f in report.files}
    groups: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for path, d in found:
        groups.setdefault((names[id(path)], d.code, d.message), []).append(d)
    return [(path, diagnostics) for (path, _, _), diagnostics in groups.items()]


def _bullet(path: str, diagnostics: list[Diagnostic]) -> str:
    first = diagnostics[0]
    effort = f" **{first.effort}**" if first.effort else ""
    what = f" {code(first.construct)}" if first.construct else ""
    lines = ", ".join(dict.fromkeys(str(d.range.line) for d in diagnostics[1:6]))
    more = ", …" if len(diagnostics) > 6 else ""
    also = f" (also in {'lines' if ',' in lines else 'line'} {lines}{more})" if lines else ""
    at = place_link(path, first.range.cell, first.range.line)
    return f"* {at} {first.code}{effort}{what}: {prose(first.message)}{also}"
