"""Annotations in a GitHub workflow: log lines that its runner interprets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from migrator.diagnostics import Outcome, Range, Severity
from migrator.registry import registry
from migrator.report import View
from migrator.report.findings import ReportFinding, by_importance, findings, relative, top
from migrator.report.hunks import Hunk
from migrator.report.statistics import count_noun
from migrator.report.terminal import printable, spelled_out
from migrator.runs.run_report import Report

_SHOWN = 10  # of each kind, per step: GitHub drops the rest
_MESSAGE = 4000  # characters
_LINES = 6


def render(report: Report, view: View) -> str:
    """The most important findings as annotations, the others as a group in the log."""
    found = [f for f in findings(report, written=view.written) if not f.suppressed]
    folder = _in_workspace(report)
    counts: Counter[str] = Counter()
    lines: list[str] = []
    rest: list[str] = []
    for error in report.errors:
        _add_annotation(lines, rest, counts, "error", {"title": "tpu-migrate"}, error, error)
    for note in report.notes:
        _add_annotation(lines, rest, counts, "notice", {"title": "tpu-migrate"}, note, note)
    for group in _by_line(by_importance(found)):
        first = group[0]
        message = "\n".join(dict.fromkeys([*(f.message for f in group), *_becomes(group)]))
        where = _where(first, folder)
        plain = f"{first.code}  {where['file']}:{first.place.line}  {first.message}"
        _add_annotation(
            lines, rest, counts, _kind(first), {**where, "title": _title(group)}, message, plain
        )
    if rest:
        lines += [f"::group::tpu-migrate: and {len(rest)} more", *rest, "::endgroup::"]
    return "\n".join([*lines, _summary(report, view)])


def _add_annotation(
    lines: list[str],
    rest: list[str],
    counts: Counter[str],
    kind: str,
    properties: dict[str, object],
    message: str,
    plain: str,
) -> None:
    counts[kind] += 1
    if counts[kind] <= _SHOWN:
        lines.append(command(kind, properties, message[:_MESSAGE]))
    else:
        rest.append(f"  {printable(plain)}")


def command(kind: str, properties: dict[str, object], message: str) -> str:
    """One workflow command; its values can't end it or start another."""
    values = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{kind} {values}::{_data(message)}"


def _data(text: str) -> str:
    """Text in a command; whoever reads the log in a terminal is safe, too."""
    text = spelled_out(text.replace("\r\n", "\n"))
    return text.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _by_line(found: Iterable[ReportFinding]) -> list[list[ReportFinding]]:
    """All edits of a line form one annotation, at the first position; others are separate."""
    groups: dict[object, list[ReportFinding]] = {}
    for f in found:
        groups.setdefault((f.path, f.place.line) if f.pending else id(f), []).append(f)
    return list(groups.values())


def _becomes(group: Sequence[ReportFinding]) -> list[str]:
    """The new text of the first lines of an edit."""
    first = group[0]
    hunks = first.hunks[:1] if first.pending else ()
    lines = [f"+ {line}" for hunk in hunks for line in _own_lines(hunk, first.diagnostic.range)]
    return [*lines[:_LINES], *(["+ …"] if len(lines) > _LINES else [])]


def _own_lines(hunk: Hunk, where: Range) -> Sequence[str]:
    """The new text of a hunk's line: the most similar new line; otherwise, the whole hunk's."""
    at = where.line - 1 - hunk.start
    if where.line != where.end_line or not 0 <= at < len(hunk.before):
        return hunk.after
    if len(hunk.before) == len(hunk.after):
        return hunk.after[at : at + 1]
    return get_close_matches(hunk.before[at], hunk.after, 1) or hunk.after


def _kind(finding: ReportFinding) -> str:
    if finding.diagnostic.severity is Severity.ERROR:
        return "error"
    return "warning" if finding.diagnostic.outcome is Outcome.REPORTED else "notice"


def _title(group: Sequence[ReportFinding]) -> str:
    codes = list(dict.fromkeys(f.code for f in group))
    rule = registry().rules.get(codes[0])
    return codes[0] + (f" {rule.name}" if rule else "") if len(codes) == 1 else ", ".join(codes)


def _where(finding: ReportFinding, folder: str) -> dict[str, object]:
    place = finding.place
    where: dict[str, object] = {"file": folder + finding.path, "line": place.line}
    if place.end_line > place.line:
        return {**where, "endLine": place.end_line}  # columns are only allowed for a single line
    if place.column:
        where |= {"col": place.column, "endColumn": max(place.end_column - 1, place.column)}
    return where


def _in_workspace(report: Report) -> str:
    """The path from the workflow's workspace to the project, if it was checked out below it."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if not workspace:
        return ""
    way = relative(top(report), Path(workspace))
    return "" if way == "." or way.startswith("..") else f"{way}/"


def _summary(report: Report, view: View) -> str:
    left, errors = report.count(Outcome.REPORTED), len(report.failures) + len(report.errors)
    parts = [
        f"{count_noun(len(report.files), 'file')} scanned",
        f"{len(report.changed)} {'changed' if view.written else 'would change'}",
        f"{count_noun(left, 'construct')} to change by hand",
        *([count_noun(errors, "error")] if errors else []),
    ]
    return f"tpu-migrate: {', '.join(parts)}"
