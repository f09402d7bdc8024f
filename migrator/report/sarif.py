"""SARIF 2.1.0 (OASIS): for code scanning, and for viewers that can apply the fixes."""

from __future__ import annotations

import codecs
import io
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from migrator.diagnostics import Safety, Severity
from migrator.distribution import __version__
from migrator.formats import file_kinds
from migrator.report import View, as_json
from migrator.report.explain import every_code, explain, markdown
from migrator.report.findings import FileText, LineRange, ReportFinding, findings, relative, top
from migrator.report.hunks import Hunk
from migrator.rule import Rule
from migrator.runs.run_report import FileReport, Report

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "%SRCROOT%"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning"}  # otherwise "note"


def render(report: Report, view: View) -> str:
    """One run. Kept constructs aren't results; suppressed ones are."""
    found = findings(report, written=view.written)
    codes = list(dict.fromkeys(finding.code for finding in found))
    fixes = {} if view.written else _fixes(report)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "tpu-migrate",
                "semanticVersion": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "invocations": [_invocation(report, view)],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The top of the project."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(f, codes.index(f.code), fixes.get(_key(f), [])) for f in found],
    }
    return as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _invocation(report: Report, view: View) -> dict[str, Any]:
    said = [*report.errors, *(f"{path}: {d.message}" for path, d in report.failures)]
    found: dict[str, Any] = {
        "executionSuccessful": view.exit_code != 2,
        "exitCode": view.exit_code,
        "workingDirectory": {"uri": f"{Path.cwd().as_uri()}/"},
    }
    notes = [{"level": "error", "message": {"text": _without_placeholders(text)}} for text in said]
    notes += [
        {"level": "note", "message": {"text": _without_placeholders(text)}} for text in report.notes
    ]
    if report.runtime is not None and not view.written:
        text = f"{report.runtime}: the runtime of the migrated code is to be written"
        notes.append({"level": "note", "message": {"text": _without_placeholders(text)}})
    return {**found, "toolExecutionNotifications": notes} if notes else found


def _rule(code: str) -> dict[str, Any]:
    rule = every_code().get(code)
    if rule is None:
        return {"id": code}
    said = {"safety": str(rule.safety)} if isinstance(rule, Rule) else {}
    references = rule.references if isinstance(rule, Rule) else ()
    return {
        "id": code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.summary[:1].upper()}{rule.summary[1:]}."},
        "fullDescription": {"text": " ".join(rule.why.split())},
        # Viewers show a help text literally: its braces aren't doubled.
        "help": {"text": _help(code), "markdown": markdown(rule)},
        "properties": {"tags": ["tpu", "pytorch"], **said},
        **({"helpUri": references[0]} if references else {}),
    }


@cache
def _help(code: str) -> str:
    out = io.StringIO()
    plain = Console(file=out, width=80, color_system=None, force_terminal=True)
    explain(every_code()[code], plain)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _result(finding: ReportFinding, rule: int, fixes: list[dict[str, Any]]) -> dict[str, Any]:
    diagnostic = finding.diagnostic
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "kind": "fail",
        "level": _LEVELS.get(diagnostic.severity, "note"),
        "message": {"text": _without_placeholders(finding.message)},
        "locations": [
            {"physicalLocation": {"artifactLocation": _artifact(finding.path),
                                  "region": _region(finding.place)}}
        ],
        "partialFingerprints": {"tpuMigrate/v1": finding.fingerprint},
    }  # fmt: skip
    about = {
        "outcome": diagnostic.outcome,
        "safety": diagnostic.safety,
        "effort": diagnostic.effort,
        "cell": diagnostic.range.cell,
    }
    if any(about.values()):
        result["properties"] = {
            key: value if isinstance(value, int) else str(value)
            for key, value in about.items()
            if value
        }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource", "status": "accepted"}]
    if fixes:
        result["fixes"] = fixes
    return result


def _without_placeholders(text: str) -> str:
    """Text without any placeholder (3.11.5) or link (3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _artifact(path: str) -> dict[str, str]:
    return {"uri": quote(path.encode("utf-8", "surrogateescape")), "uriBaseId": _ROOT}


def _region(place: LineRange) -> dict[str, int]:
    region = {"startLine": place.line}
    if place.column:
        region["startColumn"] = place.column
    if place.end_line != place.line or place.column:
        region["endLine"] = place.end_line
    if place.column:
        region["endColumn"] = place.end_column
    return region


# ---- fixes ---------------------------------------------------------------------------------------


def _key(finding: ReportFinding) -> tuple[str, object]:
    return finding.path, finding.diagnostic


def _fixes(report: Report) -> dict[tuple[str, object], list[dict[str, Any]]]:
    """The changes of each pending edit, with everything that has to change together, as file lines.

    Not for notebooks, whose lines are JSON, and not for files with a byte order mark,
    or with mixed line ends.
    """
    folder = top(report)
    found: dict[tuple[str, object], list[dict[str, Any]]] = {}
    for file in report.changed:
        ending = _ending(file)
        if ending is None:
            continue
        text = FileText(file)
        path = relative(file.path, folder)
        for diagnostic in file.result.diagnostics:
            needed = text.needed(diagnostic)
            if needed:
                replacements = [_replacement(h, text.lines, ending) for h in needed]
                change = {"artifactLocation": _artifact(path), "replacements": replacements}
                unsafe = any(h.safety is Safety.UNSAFE for h in needed)
                said = f"{diagnostic.code}{f', which {Safety.UNSAFE.words}' * unsafe}"
                found[path, diagnostic] = [
                    {"description": {"text": said}, "artifactChanges": [change]}
                ]
    return found


def _ending(file: FileReport) -> str | None:
    content = file.result.original
    if file_kinds.is_notebook(file.path) or content.startswith(codecs.BOM_UTF8):
        return None
    ends = set(re.findall(rb"\r\n|\r|\n", content)) or {b"\n"}
    return ends.pop().decode() if len(ends) == 1 and b"\r" not in ends else None


def _replacement(hunk: Hunk, lines: list[str], ending: str) -> dict[str, Any]:
    """Whole lines; after the last line there is nothing to insert before."""
    first, last = hunk.start + 1, hunk.end + 1
    text = "".join(line + ending for line in hunk.after)
    region = {"startLine": first, "startColumn": 1, "endLine": last, "endColumn": 1}
    if last > len(lines):  # the last line has no newline
        end = len(lines)
        region |= {"endLine": end, "endColumn": len(lines[-1]) + 1}
        text = text.removesuffix(ending)
        if first > end or not hunk.after:
            before = len(lines[first - 2]) + 1 if first > 1 else 1
            region |= {"startLine": max(first - 1, 1), "startColumn": before}
            text = ending + text if hunk.after else text
    return {"deletedRegion": region, **({"insertedContent": {"text": text}} if text else {})}
