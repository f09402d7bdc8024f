"""Copies of the runtime: where a migrated project needs one, and which files are missing there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from migrator.analysis.foreign_code import quotes
from migrator.errors import UsageError
from migrator.files import witness
from migrator.files.discover import Disk, bundled_target, discover, project_root
from migrator.files.reading import read_or_none
from migrator.files.staging import is_temporary
from migrator.files.user_folders import resolved
from migrator.pipeline.normalise import foreign
from migrator.pipeline.own_module import own_module
from migrator.runs.run_report import FileReport, Report
from migrator.runs.worker import Worker
from migrator.targets import RUNTIME, Target, portable, targets
from migrator.targets.copies import SUMS, runtime_copy, sums_in

SET_UP = f"{RUNTIME}.setup(".encode()  # functions that a migrated program calls


# A file that imports the runtime, by the folder that it is imported from.
Uses = Mapping[Path, Path]


def runtime_uses(
    files: Sequence[FileReport], worker: Worker, roots: Sequence[Path] = ()
) -> dict[Path, Path]:
    """The folders that migrated files import the runtime from, each with the first such file."""
    uses: dict[Path, Path] = {}
    for file in files:
        if RUNTIME in file.result.companions and own_module(worker.project(file.path)) is None:
            root = worker.project(file.path, roots).import_root(file.result.source)
            uses.setdefault(root, file.path)
    return uses


def runtime_folders(uses: Uses, copied: Path | None = None) -> list[Path]:
    """The folders that are to be a copy of the runtime; for a copy of `copied`, inside it."""
    folders: dict[Path, None] = {}
    for root, file in uses.items():
        if copied is not None and not root.is_relative_to(copied):
            root = copied  # a copy can't write above itself
        folders[_as_given(root, file) / RUNTIME] = None
    return [*folders]


def runtime_files(
    report: Report, folders: Iterable[Path], worker: Worker, renews: bool = True
) -> dict[Path, bytes]:
    """The runtime's files that are missing there, or of another version.

    Without `renews`, a copy that is there stays as it is.
    """
    target = portable(worker.target) if worker.config.portable else worker.target
    disk = Disk()
    files: dict[Path, bytes] = {}
    for at in folders:
        there = bundled_target(at)
        if there is not None and not renews:
            continue
        if there is None and not _is_free(at):
            report.errors.append(f"{at}: the runtime needs this name")
            continue
        if not resolved(at).is_relative_to(project_root(resolved(at.parent))):
            report.errors.append(f"{at}: is a link that leads out of the project; not written")
            continue
        other = there if there != target.label else None  # that is replaced
        if other is not None:
            refuse_use(at, other, at.parent, report, worker)
        inside = frozenset() if other else disk.list(at)
        for name, content in runtime_copy(target).items():
            if name.partition("/")[0] not in inside or disk.read(at / name) != content:
                files[at / name] = content
        report.obsolete |= _replaced(at, runtime_copy(target), is_other=other is not None)
    return files


def refuse_use(at: Path, label: str, top: Path, report: Report, worker: Worker) -> None:
    """Refuse to replace another target's runtime that some file below `top` will still need.

    Raises:
        UsageError: there is such a file.
    """
    results = {resolved(file.path): file.result.source for file in report.files}
    owner = targets().get(label.partition(" ")[0])
    for path in discover([top], worker.config.excluded).files:
        source = results.get(resolved(path)) or Disk().read(path) or b""
        if owner is None or foreign(source, worker.target) or _names_device(source, owner):
            raise UsageError(
                f"{at} is {label}'s runtime, which {path} would still need; migrate all of "
                f"{top}, or the GPU original, for {worker.target.label}"
            )


def _names_device(source: bytes, target: Target) -> bool:
    return not target.api.device_names and quotes(target.api.device, source)


def _replaced(at: Path, files: Container[str], is_other: bool) -> dict[Path, bytes]:
    """The files of a copy that its new version lacks, or another target's runtime."""
    names = set(sums_in(read_or_none(at / SUMS) or b""))
    if is_other:
        names |= {path.relative_to(at).as_posix() for path in at.rglob("*.py")}
    found = {at / name: read_or_none(at / name) for name in sorted(names) if name not in files}
    return {path: content for path, content in found.items() if content is not None}


def _is_free(folder: Path) -> bool:
    """Whether the folder is empty, except for remains of an interrupted run."""
    if not witness.lexists(folder):
        return True
    return witness.isdir(folder) and all(map(is_temporary, witness.names(folder)))


def _as_given(folder: Path, file: Path) -> Path:
    """`folder` (absolute), spelled like the given `file`, so that reports show short paths."""
    for parent in file.parents:
        if resolved(parent) == folder:
            return parent
    return folder
