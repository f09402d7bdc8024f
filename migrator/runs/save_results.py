"""Saving: writing the results of a run into projects or a copy, and undoing that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from migrator.files import copying, in_place
from migrator.files.discover import project_root
from migrator.files.in_place import FileChange
from migrator.files.lock import only_writer
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.runs.run_report import Report


def save(
    report: Report,
    roots: Sequence[Path],
    write: bool,
    output: str | os.PathLike[str] | None,
    allow_dirty: bool,
    beside: Sequence[Path] = (),
) -> None:
    """Write what changes in place, or a copy of the one path, with the files ``beside`` it."""
    if output is None and not write:
        return
    outputs: dict[Path, tuple[bytes | None, bytes | None]] = {
        path: (read_or_none(path), content) for path, content in report.companions.items()
    }
    # The runtime comes first: a program without it does not start.
    outputs |= {f.path: (f.result.original, f.result.source) for f in report.changed}
    outputs |= {path: (content, None) for path, content in report.obsolete.items()}
    changes = [FileChange(path, before, after) for path, (before, after) in outputs.items()]
    if output is not None:
        report.output, report.copied = Path(output), _folder(roots[0])
        report.errors += copying.copy(roots[0], report.output, changes, beside)
    elif changes:
        tops = projects_of(roots)
        by_root: dict[Path, list[FileChange]] = {}
        for change in changes:
            real = resolved(change.path)
            top = next(top for top in reversed(tops) if real.is_relative_to(top))
            by_root.setdefault(top, []).append(change)
        report.notes += in_place.write(by_root, allow_dirty)


def projects_of(roots: Iterable[Path]) -> list[Path]:
    """The projects that a writing run locks: those of its paths."""
    real = [resolved(root) for root in roots]
    return sorted({project_root(path, real) for path in real})


@contextmanager
def writing(report: Report, roots: Sequence[Path]) -> Iterator[None]:
    """Lock the projects of some paths, after completing an interrupted run."""
    tops = projects_of(roots)
    with only_writer(tops):
        report.notes += in_place.recover(tops)
        yield


@contextmanager
def looking(report: Report, roots: Sequence[Path]) -> Iterator[None]:
    """Say that a run was interrupted, of which some of the files may be."""
    report.notes += in_place.interrupted(projects_of(roots))
    yield


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent
