"""The findings of a document, and its rewrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.config import Config
from migrator.diagnostics import Diagnostic, Outcome
from migrator.editor.open_documents import DocumentEdit, OpenDocument, Text
from migrator.pipeline.result import Result
from migrator.runs.run_targets import chosen_targets
from migrator.targets import Target


@dataclass(frozen=True)
class Moment:
    """A document at one point in time, with the files around it.

    `others` are the open documents, as project files, by real path; `number` counts file
    events. Two equal moments have the same findings.
    """

    document: OpenDocument
    others: Mapping[Path, bytes | None]
    config: Config
    roots: Sequence[Path]
    number: int

    @property
    def targets(self) -> Sequence[Target]:
        """One for each framework that is to be migrated."""
        return chosen_targets(self.config.targets)


@dataclass(frozen=True)
class Analysis:
    """The findings of a document at one moment."""

    moment: Moment
    result: Result

    @property
    def document(self) -> OpenDocument:
        return self.moment.document

    @property
    def findings(self) -> Sequence[Diagnostic]:
        return self.result.diagnostics

    @property
    def changes(self) -> bool:
        """Whether a migration changes the document."""
        left = any(d.outcome is Outcome.REPORTED for d in self.findings)
        return self.result.changed or (self.moment.config.todo_comments and left)


@dataclass(frozen=True)
class OfferedRewrite:
    """A migration's changes to the texts of a document, and the packages it needs beside it."""

    edits: Sequence[tuple[Text, Sequence[DocumentEdit]]]
    companions: frozenset[str]
