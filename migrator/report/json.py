"""JSON for programs: everything that the console shows, and more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migrator.analysis.import_verdicts import ImportedModule
from migrator.diagnostics import Diagnostic, Outcome, Range
from migrator.distribution import __version__
from migrator.report import View, as_json
from migrator.report.findings import as_written
from migrator.report.statistics import Work, by_code, of_file, of_project
from migrator.report.staying import Staying, staying
from migrator.runs.run_report import FileReport, Report


def render(report: Report, view: View) -> str:
    """One JSON object: `files` with their diagnostics, `summary`, `errors`, `companions`."""
    written = view.written or report.output is not None
    now = as_written(report).files if written else [None] * len(report.files)
    document: dict[str, Any] = {
        "version": __version__,
        "target": report.target or None,
        "files": [
            _file(f, its)
            for f, its in zip(report.files, now, strict=True)
            if f.result.diagnostics or f.result.changed
        ],
        "companions": [str(path) for path in report.companions],
        "imports": [_import(*each) for each in report.find_imports().items()],
        "staying": [_staying(program) for program in staying(report)[0]],
        "errors": report.errors,
        "notes": report.notes,
        "runtime": [delivery.said() for delivery in report.deliveries],
        "summary": {
            "scanned": len(report.files),
            "changed": len(report.changed),
            "constructs": sum(report.count(o) for o in Outcome),
            **{str(outcome): report.count(outcome) for outcome in Outcome},
            **_work(of_project(report)),
            "unsafe": dict(sorted(report.unsafe.items())),
            "advice": len(report.advice),
            "lacks_program": report.lacks_program,
            "incomplete": report.incomplete,
            "seconds": round(report.seconds, 3),
        },
    }
    if view.statistics:
        document["statistics"] = [
            {"code": code, **{str(o): n for o, n in counts.items()}}
            for code, counts in by_code(report).items()
        ]
    return as_json(document)


def _import(imported: ImportedModule, files: Sequence[Path]) -> dict[str, Any]:
    """A module that is imported, but for the standard library's and the project's own."""
    about = {"about": imported.about} if imported.about else {}
    return {
        "module": imported.module,
        "verdict": str(imported.verdict),
        **about,
        "files": list(map(str, files)),
    }


def _staying(program: Staying) -> dict[str, Any]:
    """A program that stays with all its files, and the lines in the way."""
    return {
        "constructs": program.constructs,
        "files": list(map(str, program.files)),
        "obstacles": [
            {"path": str(o.path), "line": o.line, "reason": o.reason, "constructs": o.constructs}
            for o in program.obstacles
        ],
        "furthest": program.furthest,
    }


def _file(file: FileReport, now: FileReport | None) -> dict[str, Any]:
    found = file.result.diagnostics
    places = [d.range for d in now.result.diagnostics] if now else [None] * len(found)
    return {
        "path": str(file.path),
        **({"written": str(now.path)} if now and file.result.changed else {}),
        "changed": file.result.changed,
        **_work(of_file(file)),
        "unsafe": dict(sorted(file.unsafe.items())),
        "diagnostics": [_diagnostic(d, at) for d, at in zip(found, places, strict=True)],
    }


def _work(work: Work) -> dict[str, Any]:
    return {
        "automatic": round(work.automatic, 1),
        "upgrades": work.upgrades,
        "effort": work.effort and str(work.effort),
        "left": [
            {"code": code, "effort": str(effort), "count": n}
            for (code, effort), n in sorted(work.left.items())
        ],
    }


def span(where: Range) -> dict[str, Any]:
    """Where something begins and ends."""
    return {
        "start": {"line": where.line, "column": where.column},
        "end": {"line": where.end_line, "column": where.end_column},
    }


def _diagnostic(diagnostic: Diagnostic, now: Range | None) -> dict[str, Any]:
    where = diagnostic.range
    return {
        "code": diagnostic.code,
        "severity": str(diagnostic.severity),
        "outcome": str(diagnostic.outcome) if diagnostic.outcome else None,
        "message": diagnostic.message,
        "construct": diagnostic.construct,
        **({"safety": str(diagnostic.safety), "why": diagnostic.why} if diagnostic.safety else {}),
        **({"effort": str(diagnostic.effort)} if diagnostic.effort else {}),
        **span(where),
        **({"now": {"line": now.line, "column": now.column}} if now else {}),
        **({"cell": where.cell} if where.cell else {}),
    }
