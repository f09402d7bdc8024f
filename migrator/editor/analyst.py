"""Analyses documents in a separate process (started by `analyst_process`)."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, BinaryIO

from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.project.readers import Overlay
from migrator.codes import INTERNAL
from migrator.config import Config
from migrator.diagnostics import START, Diagnostic, Outcome, Severity
from migrator.editor import single
from migrator.editor.analysis import Analysis, Moment, OfferedRewrite
from migrator.editor.open_documents import DocumentEdit, OpenDocument, Text
from migrator.files.discover import Disk
from migrator.pipeline.recursion_limit import DEEP
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.runs.worker import MAX_BYTES, MAX_NOTEBOOK, Worker, migrate_for_all

LENGTH = struct.Struct("<Q")  # before each message, a pickle
_STACK = 64 * 2**20  # bytes, for deeply nested expressions; a thread may get as little as 512 KiB


class Analyst:
    """Analyses an editor's documents, one at a time.

    It keeps its project caches and the last analysis, since the next request is usually about it.
    """

    def __init__(self) -> None:
        self._caches: dict[str, ProjectCache] = {}
        self._last: tuple[Analysis, Worker] | None = None

    def analysis(self, moment: Moment) -> Analysis:
        return self._analysed(moment)[0]

    def rewrite(self, moment: Moment, finding: Diagnostic | None) -> OfferedRewrite:
        """Rewrite one finding, or all of them."""
        analysis, worker = self._analysed(moment)
        document, config = moment.document, moment.config
        result = analysis.result
        if finding is not None:
            project, options = worker.project(document.path), worker.config.options
            result = single.single(document.path, result, finding, worker.targets, options, project)
        elif config.todo_comments:
            result = _migrated(document, worker, config)
        return OfferedRewrite(list(document.edits(result.source)), result.companions)

    def suppressions(
        self, moment: Moment, findings: Sequence[Diagnostic]
    ) -> list[tuple[Text, DocumentEdit] | None]:
        """For each finding, the edit that suppresses it, if there is one."""
        analysis, worker = self._analysed(moment)
        return [_suppression(analysis, worker, finding) for finding in findings]

    def _analysed(self, moment: Moment) -> tuple[Analysis, Worker]:
        if self._last is None or self._last[0].moment != moment:
            self._last = None  # it may be large
            self._last = self._analyse(moment)
        return self._last

    def _analyse(self, moment: Moment) -> tuple[Analysis, Worker]:
        document, targets = moment.document, moment.targets
        bare = replace(moment.config, todo_comments=False)  # each rewrite by itself; see `single`
        reader, earlier = Overlay(Disk(), moment.others), self._caches.get(targets[0].name)
        worker = Worker(moment.roots, targets, bare, reader=reader, earlier=earlier)
        result = _migrated(document, worker, bare)
        worker.keep_programs({document.path: result})
        if worker.held and result.migrated:
            result = _migrated(document, worker, bare)
        self._caches[targets[0].name] = worker.cache
        return Analysis(moment, result), worker


def _suppression(
    analysis: Analysis, worker: Worker, finding: Diagnostic
) -> tuple[Text, DocumentEdit] | None:
    document = analysis.document
    found = document.comment(finding.range, finding.code)
    if found is None:
        return None
    after = _migrated(document.with_edit(*found), worker, worker.config)
    return (
        found
        if _findings_on_line(after, finding) < _findings_on_line(analysis.result, finding)
        else None
    )


def _findings_on_line(result: Result, finding: Diagnostic) -> int:
    """How many findings of the same rule are on the lines of a finding."""
    where = finding.range
    return sum(
        d.code == finding.code
        and d.outcome is not Outcome.KEPT
        and (d.range.cell, d.range.line) == (where.cell, where.line)
        for d in result.diagnostics
    )


def _migrated(document: OpenDocument, worker: Worker, config: Config) -> Result:
    content = document.content
    if len(content) > (MAX_BYTES if document.path.suffix == ".py" else MAX_NOTEBOOK):
        return Result(content, content)
    try:
        project = worker.project(document.path)
        return migrate_for_all(document.path, content, worker.targets, config.options, project)
    except Exception as error:  # our bugs must not take the server down
        message = f"internal error: {type(error).__name__}: {error}"
        return Result(content, content, (Diagnostic(START, INTERNAL, Severity.ERROR, message),))


# ---- the process ---------------------------------------------------------------------------------


def serve() -> None:
    """Read requests from standard input, answer on standard output; exit when input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything printed goes to stderr, not among the answers
    questions: SimpleQueue[Any] = SimpleQueue()
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))
    threading.stack_size(_STACK)
    threading.Thread(target=_answer, args=(questions, answers), daemon=True).start()
    while header := sys.stdin.buffer.read(LENGTH.size):
        questions.put(pickle.loads(sys.stdin.buffer.read(*LENGTH.unpack(header))))
    os._exit(0)  # no one is waiting for an answer


def _answer(questions: SimpleQueue[Any], answers: BinaryIO) -> None:
    import migrator.tree  # noqa: F401  load LibCST before the first request

    registry()
    analyst = Analyst()
    while True:
        what, *arguments = questions.get()
        try:
            answer = True, getattr(analyst, what)(*arguments)
        except Exception as error:
            answer = False, f"internal error: {type(error).__name__}: {error}"
        message = pickle.dumps(answer)
        answers.write(LENGTH.pack(len(message)) + message)
        answers.flush()
