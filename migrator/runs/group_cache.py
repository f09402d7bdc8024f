"""The results of earlier runs for groups of files that nothing has changed for."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from migrator.cache.known_groups import KnownGroups
from migrator.decision import Obstacle, Report
from migrator.diagnostics import Diagnostic, Effort, Outcome, Range, Safety, Severity
from migrator.files.reading import read_file
from migrator.pipeline.result import Result
from migrator.runs.group import MigratedFile
from migrator.runs.run_report import FileReport
from migrator.runs.worker import Worker

_CLASSES = {
    (each.__module__, each.__qualname__): each
    for each in (
        Counter, Diagnostic, Effort, FileReport, MigratedFile, Obstacle, Outcome, Range, Report,
        Result, Safety, Severity, type(Path()),
    )
}  # fmt: skip


class KnownResults:
    """The stored results of earlier runs with the same options."""

    def __init__(self, worker: Worker) -> None:
        names = [target.name for target in worker.targets]
        options = replace(worker.config, jobs=0)  # it doesn't affect results
        self._groups = KnownGroups(repr((worker.roots, names, options)))

    def find(self, files: Sequence[Path]) -> MigratedFile | None:
        """The result for a group, if everything it depends on is unchanged."""
        content = self._groups.find(list(map(str, files)))
        try:
            return None if content is None else _unpacked(content)
        except (OSError, pickle.UnpicklingError):  # a file was just removed; a spoilt entry
            return None

    def keep(self, migrated: MigratedFile) -> None:
        """Store a group's result, unless a file could not be processed."""
        if migrated.seen is not None and not any(f.result.failed for f in migrated.files):
            files = [str(file.path) for file in migrated.files]
            self._groups.keep(files, _packed(migrated), migrated.seen)

    def save(self) -> None:
        """Store everything that was found or kept."""
        self._groups.save()


def _packed(migrated: MigratedFile) -> bytes:
    """The results, without what the files themselves hold, and without syntax trees."""
    results = [file.result for file in migrated.files]
    contents = [(bool(r.original), r.source if r.changed else None) for r in results]
    files = [replace(file, result=_lean(file.result)) for file in migrated.files]
    return pickle.dumps((replace(migrated, files=files, seen=None), contents))


def _unpacked(content: bytes) -> MigratedFile:
    """The results again. Raises OSError, or UnpicklingError for other content."""
    migrated, contents = _GroupUnpickler(io.BytesIO(content)).load()
    files = [
        replace(file, result=_whole(file, *of_file))
        for file, of_file in zip(migrated.files, contents, strict=True)
    ]
    return MigratedFile(files, migrated.uses)


def _lean(result: Result) -> Result:
    gate = replace(result.gate, whole=None) if result.gate is not None else None
    return replace(result, original=b"", source=b"", gate=gate)


def _whole(file: FileReport, has_content: bool, source: bytes | None) -> Result:
    original = read_file(file.path) if has_content else b""
    return replace(file.result, original=original, source=original if source is None else source)


class _GroupUnpickler(pickle.Unpickler):
    """Knows only the classes of results: nothing else is imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a result")
        return _CLASSES[module, name]
