"""What is to be said of a document, and done to it. Runs beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from migrator import single
from migrator.analysis.project_cache import ProjectCache
from migrator.analysis.readers import Overlay
from migrator.codes import INTERNAL
from migrator.config import Config
from migrator.diagnostics import START, Diagnostic, Outcome, Range, Severity
from migrator.editor.documents import Document, Edit, Text
from migrator.engine import migrate_file
from migrator.files.discover import Disk
from migrator.result import Result
from migrator.targets import Target
from migrator.worker import MAX_BYTES, MAX_NOTEBOOK, Worker


@dataclass(frozen=True)
class Analysis:
    """The findings in a document as it is at a moment, with the files around it."""

    document: Document
    config: Config
    worker: Worker
    result: Result
    _suppressed: dict[tuple[Range, str], tuple[Text, Edit] | None] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return self.worker.target

    @property
    def findings(self) -> Sequence[Diagnostic]:
        return self.result.diagnostics

    @property
    def changes(self) -> bool:
        """Whether a migration changes the document."""
        left = any(d.outcome is Outcome.REPORTED for d in self.findings)
        return self.result.changed or (self.config.todo_comments and left)

    def of(self, wanted: Diagnostic) -> Result:
        """What becomes of the document by the rewrite of one finding."""
        project = self.worker.project(self.document.path)
        options = self.worker.config.options
        path = self.document.path
        return single.single(path, self.result, wanted, self.target, options, project)

    def whole(self) -> Result:
        """What becomes of the document by its migration."""
        if not self.config.todo_comments:
            return self.result
        return _migrated(self.document, self.worker, self.config)

    def suppression(self, finding: Diagnostic) -> tuple[Text, Edit] | None:
        """The edit by which a finding is not made any more, if there is one."""
        key = finding.range, finding.code
        if key not in self._suppressed:
            self._suppressed[key] = self._suppression(finding)
        return self._suppressed[key]

    def _suppression(self, finding: Diagnostic) -> tuple[Text, Edit] | None:
        found = self.document.comment(finding.range, finding.code)
        if found is None:
            return None
        after = _migrated(self.document.with_edit(*found), self.worker, self.worker.config)
        return found if _said(after, finding) < _said(self.result, finding) else None


def _said(result: Result, finding: Diagnostic) -> int:
    """How often a rule has something to say of the lines of a finding."""
    where = finding.range
    return sum(
        d.code == finding.code
        and d.outcome is not Outcome.KEPT
        and (d.range.cell, d.range.line) == (where.cell, where.line)
        for d in result.diagnostics
    )


def analyse(
    document: Document,
    others: Mapping[Path, bytes | None],
    target: Target,
    config: Config,
    roots: Sequence[Path],
    earlier: ProjectCache | None = None,
) -> Analysis:
    """The findings in a document.

    Args:
        others: files that are open, by their real paths, as other files know them.
        earlier: what the last analysis for the target knew of the project.
    """
    bare = replace(config, todo_comments=False)  # each rewrite by itself; see `single`
    worker = Worker(roots, [target], bare, reader=Overlay(Disk(), others), earlier=earlier)
    result = _migrated(document, worker, bare)
    worker.hold({document.path: result})
    if worker.held and result.migrated:
        result = _migrated(document, worker, bare)
    return Analysis(document, config, worker, result)


def _migrated(document: Document, worker: Worker, config: Config) -> Result:
    content = document.content
    if len(content) > (MAX_BYTES if document.path.suffix == ".py" else MAX_NOTEBOOK):
        return Result(content, content)
    try:
        project = worker.project(document.path)
        return migrate_file(document.path, content, worker.target, config.options, project)
    except Exception as error:  # a fault of ours must not end the editor's server
        message = f"internal error: {type(error).__name__}: {error}"
        return Result(content, content, (Diagnostic(START, INTERNAL, Severity.ERROR, message),))
