"""A review for a GitHub pull request: safe edits as suggestions that can be committed from it.

The JSON is the body of GitHub's `POST /repos/{owner}/{repo}/pulls/{number}/reviews`; the caller
adds `commit_id`. A change is suggested if the pull request contains all the lines that it needs.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from migrator.diagnostics import Diagnostic, Range, Safety
from migrator.files.revisions import NewLines
from migrator.formats import file_kinds, python_source
from migrator.registry import registry
from migrator.report import View, as_json
from migrator.report.findings import FileText, relative, top
from migrator.report.hunks import Hunk
from migrator.report.markup import code, prose, verbatim
from migrator.report.statistics import count_noun
from migrator.runs.run_report import WHEEL, FileReport, Report

_COMMENTS = 30  # per review: more are better applied by the tool itself
_GAP = 2  # lines between edits that form one suggestion


def render(report: Report, view: View) -> str:
    """The review as JSON; empty `comments` if there is nothing to suggest."""
    folder = top(report)
    by_file = [(file, list(_file_comments(file, folder, report))) for file in report.changed]
    found = [comment for _, comments in by_file for comment in comments]
    body = (
        f"tpu-migrate makes {count_noun(min(len(found), _COMMENTS), 'suggestion')}: "
        f"{Safety.SAFE.words}."
    )
    if len(found) > _COMMENTS:
        body += (
            f" {len(found) - _COMMENTS} more are made by `tpu-migrate --target {report.target}`."
        )
    importing = [f for f, made in by_file if made and f.result.companions]
    if report.runtime is not None and importing:
        needed = report.runtime.name + "/" * (report.runtime.suffix != WHEEL)
        path = shlex.quote(relative(importing[0].path, folder))
        body += (
            f" They need {code(needed)}, which no suggestion can add: once they are "
            f"committed, {code(f'tpu-migrate --target {report.target} {path}')} writes it, to be "
            "committed, too."
        )
    return as_json({"event": "COMMENT", "body": body, "comments": found[:_COMMENTS]})


def _file_comments(file: FileReport, folder: Path, report: Report) -> Iterator[dict[str, Any]]:
    if file_kinds.is_notebook(file.path) or not _can_be_said(file):
        return  # lines of JSON; text that a suggestion would change
    assert report.changes is not None
    new = report.changes.lines(file.path, file.result.original)
    text = FileText(file)
    path = relative(file.path, folder)
    for group in _groups(text, file.result.diagnostics):
        spans = list(_spans(group, text.lines, new))
        if spans and not any(h.safety is Safety.UNSAFE for h in group):
            for span in spans:
                others = [first for first, _, _ in spans if first != span[0]]
                yield _comment(path, span, text.lines, others)


def _can_be_said(file: FileReport) -> bool:
    """Whether JSON can hold name and text: in UTF-8, without a BOM, with line feeds only."""
    content = file.result.original
    try:
        str(file.path).encode()
        return b"\r" not in content and python_source.decode(content).text.encode() == content
    except (SyntaxError, ValueError):
        return False


def _groups(text: FileText, diagnostics: Sequence[Diagnostic]) -> list[list[Hunk]]:
    """Hunks that belong together; groups that share a hunk are merged."""
    groups: list[list[Hunk]] = []
    for diagnostic in diagnostics:
        needed = text.needed(diagnostic)
        if not needed:
            continue
        others = [g for g in groups if any(h in needed for h in g)]
        merged = [h for h in text.every_hunk if any(h in g for g in [needed, *others])]
        groups = [g for g in groups if g not in others] + [merged]
    return groups


_Span = tuple[int, int, list[Hunk]]  # lines from 1, both inclusive


def _spans(group: Sequence[Hunk], lines: Sequence[str], new: NewLines) -> Iterator[_Span]:
    """The lines of each suggestion; empty if the pull request lacks one of them."""
    spans: list[_Span] = []
    for hunk in group:
        first, last = hunk.start + 1, hunk.end
        if first > last:  # inserted: with the line above or below it
            at = next((n for n in (hunk.start, first) if _has(new, n, n, lines)), 0)
            first = last = at
        if not _has(new, first, last, lines):
            return
        above = spans[-1] if spans else None
        if above and first - above[1] <= _GAP + 1 and _has(new, above[0], last, lines):
            spans[-1] = (above[0], max(last, above[1]), [*above[2], hunk])
        else:
            spans.append((first, last, [hunk]))
    yield from spans


def _has(new: NewLines, first: int, last: int, lines: Sequence[str]) -> bool:
    inside = 0 < first <= last <= len(lines)
    return inside and all(new.meets(Range(n, 1, n, 1)) for n in range(first, last + 1))


def _comment(path: str, span: _Span, lines: Sequence[str], others: Sequence[int]) -> dict[str, Any]:
    first, last, hunks = span
    text = list(lines[first - 1 : last])
    for hunk in reversed(hunks):
        text[hunk.start - first + 1 : hunk.end - first + 1] = hunk.after
    told = dict.fromkeys(d for h in hunks for d in h.diagnostics)
    said = [_text_of(d) for d in told] or ["What the others import."]
    if others:
        where = ", ".join(map(str, others))
        said.append(f"Belongs with line{'s' * (len(others) > 1)} {where}: commit all.")
    change = verbatim(text, "suggestion")
    named = "\0".join([path, *lines[first - 1 : last], change])
    mark = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:20]
    comment: dict[str, Any] = {
        "path": path,
        "line": last,
        "side": "RIGHT",
        "body": "\n".join([*said, change, f"<!-- tpu-migrate {mark} -->"]),
    }
    return comment | ({"start_line": first, "start_side": "RIGHT"} if last > first else {})


def _text_of(diagnostic: Diagnostic) -> str:
    rule = registry().rules.get(diagnostic.code)
    return f"{diagnostic.code}: {prose(diagnostic.message or (rule.summary if rule else ''))}"
