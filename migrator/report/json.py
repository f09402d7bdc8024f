"""JSON for programs: everything that the console shows, and more."""

from __future__ import annotations

import json
from typing import Any

from migrator import __version__
from migrator.diagnostics import Diagnostic, Outcome
from migrator.report.statistics import by_code
from migrator.run import FileReport, Report


def render(report: Report, statistics: bool = False) -> str:
    """One JSON object: `files` with their diagnostics, `summary`, `errors`, `companions`."""
    document: dict[str, Any] = {
        "version": __version__,
        "target": report.target,
        "files": [_file(f) for f in report.files if f.result.diagnostics or f.result.changed],
        "companions": [str(path) for path in report.companions],
        "errors": report.errors,
        "summary": {
            "scanned": len(report.files),
            "changed": len(report.changed),
            "constructs": sum(report.count(o) for o in Outcome),
            **{str(outcome): report.count(outcome) for outcome in Outcome},
            "advice": len(report.advice),
            "seconds": round(report.seconds, 3),
        },
    }
    if statistics:
        document["statistics"] = [
            {"code": code, **{str(o): n for o, n in counts.items()}}
            for code, counts in by_code(report).items()
        ]
    return json.dumps(document, indent=2)


def _file(file: FileReport) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "changed": file.result.changed,
        "diagnostics": [_diagnostic(d) for d in file.result.diagnostics],
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    where = diagnostic.range
    return {
        "code": diagnostic.code,
        "severity": str(diagnostic.severity),
        "outcome": str(diagnostic.outcome) if diagnostic.outcome else None,
        "message": diagnostic.message,
        "construct": diagnostic.construct,
        "start": {"line": where.line, "column": where.column},
        "end": {"line": where.end_line, "column": where.end_column},
        **({"cell": where.cell} if where.cell else {}),
    }
