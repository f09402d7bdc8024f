"""An editor's settings: the target, and the severity of findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lsprotocol.types import DiagnosticSeverity

from migrator.diagnostics import Diagnostic, Outcome, Severity
from migrator.errors import UsageError
from migrator.targets import names as target_names

SECTION = "tpuMigrate"
# VS Code sends all settings of the section: its extension reads `path` itself.
_NAMES = {"target", "severity", "path"}
_LEVELS = {
    "off": None,
    "hint": DiagnosticSeverity.Hint,
    "information": DiagnosticSeverity.Information,
    "warning": DiagnosticSeverity.Warning,
    "error": DiagnosticSeverity.Error,
}
_REWRITTEN = "rewrite"
_SEVERITY = {
    str(Severity.ERROR): "error",
    str(Severity.WARNING): "warning",
    str(Severity.ADVICE): "information",
    _REWRITTEN: "hint",
}


@dataclass(frozen=True)
class EditorSettings:
    """Settings made in the editor, which override each project's configuration."""

    target: str | None = None
    severity: Mapping[str, str] = field(default_factory=dict)

    def level(self, diagnostic: Diagnostic) -> DiagnosticSeverity | None:
        """The severity of a finding in the editor; None: it isn't shown."""
        if diagnostic.outcome is Outcome.KEPT:
            return None
        kind = str(diagnostic.severity)
        if diagnostic.severity is Severity.INFO:
            kind = _REWRITTEN
        return _LEVELS[self.severity.get(kind) or _SEVERITY[kind]]


def read(value: Any) -> EditorSettings:
    """Parse settings sent by an editor, with or without the name of their section.

    Raises:
        UsageError: an unknown name or value.
    """
    if isinstance(value, Mapping) and SECTION in value:
        value = value[SECTION]
    if value is None:
        return EditorSettings()
    if not isinstance(value, Mapping):
        raise UsageError(f"settings: {SECTION} is not an object")
    unknown = sorted(set(value) - _NAMES)
    if unknown:
        raise UsageError(f"settings: unknown: {SECTION}.{unknown[0]} (known: target, severity)")
    target = value.get("target") or None
    if target is not None and target not in target_names():
        known = ", ".join(target_names())
        raise UsageError(f"settings: {SECTION}.target is {target!r} (known: {known})")
    return EditorSettings(target, _severity(value.get("severity")))


def _severity(table: Any) -> dict[str, str]:
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise UsageError(f"settings: {SECTION}.severity is not an object")
    for kind, level in table.items():
        if kind not in _SEVERITY or level not in _LEVELS:
            raise UsageError(
                f"settings: {SECTION}.severity: {kind} is {level!r} "
                f"({', '.join(_SEVERITY)}: {', '.join(_LEVELS)})"
            )
    return dict(table)
