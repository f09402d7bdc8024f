"""GitLab's Code Quality report: a list of issues, shown in a merge request."""

from __future__ import annotations

from typing import Any

from migrator.diagnostics import Effort, Outcome, Safety, Severity
from migrator.report import View, as_json
from migrator.report.findings import ReportFinding, findings
from migrator.runs.run_report import Report

_LEFT = {Effort.MINUTES: "minor", Effort.HOURS: "major", Effort.REWRITE: "critical"}


def render(report: Report, view: View) -> str:
    """A JSON array. Errors that aren't about a file are missing; the exit code shows them."""
    found = findings(report, written=view.written)
    return as_json([_issue(f) for f in found if not f.suppressed])


def _issue(finding: ReportFinding) -> dict[str, Any]:
    return {
        "description": f"{finding.code}: {finding.message}",
        "check_name": finding.code,
        "fingerprint": finding.fingerprint,
        "severity": _severity(finding),
        "location": {
            "path": finding.path,
            "lines": {"begin": finding.place.line, "end": finding.place.end_line},
        },
    }


def _severity(finding: ReportFinding) -> str:
    diagnostic = finding.diagnostic
    if diagnostic.severity is Severity.ERROR:
        return "blocker"
    if diagnostic.outcome is Outcome.REPORTED:
        return _LEFT[diagnostic.effort or Effort.HOURS]
    return "minor" if diagnostic.safety is Safety.UNSAFE else "info"
