"""Writing a comment at each construct that is reported, so that only new ones are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from migrator.config import Config
from migrator.diagnostics import Diagnostic, Outcome, lines_of
from migrator.formats.file_kinds import is_module
from migrator.pipeline.result import Result
from migrator.pipeline.suppress import comment_for
from migrator.runs.run import existing, migrate_paths
from migrator.runs.run_report import FileReport, Report
from migrator.runs.save_results import looking, save, writing


def add_ignores(
    paths: Sequence[str | os.PathLike[str]],
    targets: Sequence[str],
    config: Config,
    *,
    write: bool = False,
    allow_dirty: bool = False,
) -> Report:
    """Put `# tpu-migrate: ignore[CODE]` on the line of each reported construct; rewrite nothing.

    Raises:
        UsageError: as `migrate_paths` does.
    """
    started, roots = time.perf_counter(), existing(paths)
    found = migrate_paths(paths, targets, config=config)
    report = Report(target="", errors=found.errors)
    with writing(report, roots) if write else looking(report, roots):
        for file in found.files:
            _add(report, file)
        save(report, roots, write, None, allow_dirty)
    report.seconds = time.perf_counter() - started
    return report


def _add(report: Report, file: FileReport) -> None:
    result = file.result
    left = [d for d in result.diagnostics if d.outcome is Outcome.REPORTED]
    if result.failed or not left:
        report.files.append(FileReport(file.path, Result(result.original, result.original)))
        return
    text = with_comments(file.path, result.original, left)
    if text is None:
        report.notes.append(f"{file.path}: is no Python module: put its comments in by hand")
        text = result.original
    report.files.append(FileReport(file.path, Result(result.original, text)))


def with_comments(path: Path, content: bytes, found: Iterable[Diagnostic]) -> bytes | None:
    """A module's text with a comment for each finding; None for what is no module in UTF-8."""
    if not is_module(path):
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    for where, code in dict.fromkeys((d.range, d.code) for d in found):
        place = comment_for(text, where.line, where.end_line, code)
        if place is not None:
            line, column, comment = place
            lines = lines_of(text)
            at = lines[line - 1]
            lines[line - 1] = f"{at[:column]}{comment}{at[column:]}"
            text = "".join(lines)
    return text.encode("utf-8")
