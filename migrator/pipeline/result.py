"""What becomes of one file."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.decision import Report
from migrator.diagnostics import START, Diagnostic, Range, Severity


@dataclass(frozen=True)
class Result:
    """What became of one file."""

    original: bytes
    source: bytes
    diagnostics: tuple[Diagnostic, ...] = ()
    companions: frozenset[str] = frozenset()  # packages that must lie beside the project
    stays: bool = False  # a reason was found to leave the whole file alone
    gate: Report | None = None  # that reason, also where names of the project's own were replaced
    uses_device: bool = False

    @property
    def changed(self) -> bool:
        return self.source != self.original

    @property
    def migrated(self) -> bool:
        """Whether there is more to it than comments that were put in."""
        return any(d.is_edit for d in self.diagnostics)

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.diagnostics)


class Failure(Exception):
    """Why a file stays as it is: the code, one line, and the place."""

    def __init__(self, code: str, message: str, where: Range = START) -> None:
        super().__init__(message)
        self.code, self.message, self.where = code, message, where

    def result(self, content: bytes) -> Result:
        """The file, as it was."""
        found = Diagnostic(self.where, self.code, Severity.ERROR, self.message)
        return Result(content, content, (found,))
