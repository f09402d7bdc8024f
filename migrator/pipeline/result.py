"""The result for one file."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.decision import Report
from migrator.diagnostics import START, Diagnostic, Range, Severity


@dataclass(frozen=True)
class Result:
    """The result for one file."""

    original: bytes
    source: bytes
    diagnostics: tuple[Diagnostic, ...] = ()
    companions: frozenset[str] = frozenset()  # packages that have to be beside the project
    stays: bool = False  # the whole file was left unchanged for a reason
    gate: Report | None = None  # that reason, also if only the project's own names were replaced
    uses_device: bool = False

    @property
    def changed(self) -> bool:
        return self.source != self.original

    @property
    def migrated(self) -> bool:
        """Whether it contains more changes than inserted comments."""
        return any(d.is_edit for d in self.diagnostics)

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.diagnostics)


class MigrationFailure(Exception):
    """Why a file stays unchanged: the code, one line, and the place."""

    def __init__(self, code: str, message: str, where: Range = START) -> None:
        super().__init__(message)
        self.code, self.message, self.where = code, message, where

    def result(self, content: bytes) -> Result:
        """The unchanged file as a result."""
        found = Diagnostic(self.where, self.code, Severity.ERROR, self.message)
        return Result(content, content, (found,))
