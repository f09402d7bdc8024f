"""Copies of the runtime: where a migrated project needs one, and what is missing there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from migrator.analysis import needs
from migrator.analysis.project.facts import ProjectFacts
from migrator.errors import UsageError
from migrator.files import in_place, witness
from migrator.files.discover import Disk, bundled_target, project_root
from migrator.files.in_place import Change
from migrator.files.lock import only_writer
from migrator.files.reading import read_or_none
from migrator.files.staging import is_temporary
from migrator.pipeline.result import Result
from migrator.runs.bundle import Needs, bundle
from migrator.runs.run_report import FileReport, Report
from migrator.runs.worker import Worker
from migrator.targets import RUNTIME, portable

SET_UP = f"{RUNTIME}.setup(".encode()  # what a migrated program calls


def runtime_beside(path: Path, worker: Worker) -> dict[Path, bytes]:
    """The files of the runtime that are missing, or of another version, for one migrated file.

    Raises:
        UsageError: another folder of that name is in the way, or the runtime of another target.
    """
    result = Result(b"", b"", companions=frozenset({RUNTIME}))
    report = Report(worker.target.name, [FileReport(path, result)])
    folders = runtime_folders(report, [*worker.roots, path.parent], worker, False)
    files = runtime_files(report, folders, worker)
    if report.errors:
        raise UsageError(report.errors[0])
    return files


def write_beside(files: Mapping[Path, bytes], root: Path) -> None:
    """Write files of the runtime into a project, as a run does. Raises UsageError."""
    with only_writer([root]):
        in_place.recover([root])
        in_place.write({root: [Change(p, read_or_none(p), new) for p, new in files.items()]})


def runtime_folders(
    report: Report, roots: Sequence[Path], worker: Worker, copied: bool
) -> dict[Path, list[FileReport]]:
    """Where a copy of the runtime has to be, one an import root, and the files that import it."""
    folders: dict[Path, list[FileReport]] = {}
    for file in report.files:
        if RUNTIME in file.result.companions:
            path = file.path.resolve()
            top = roots[0].resolve() if roots[0].is_dir() else roots[0].resolve().parent
            root = worker.project(path, roots).import_root(file.result.source)
            if copied and root != top and top not in root.parents:
                root = top  # a copy can not reach above itself
            folders.setdefault(_as_given(root, file.path) / RUNTIME, []).append(file)
    return folders


def runtime_files(
    report: Report, folders: Mapping[Path, list[FileReport]], worker: Worker
) -> dict[Path, bytes]:
    """The runtime's files that its programs need, where they are missing or of another version."""
    target = portable(worker.target) if worker.config.portable else worker.target
    disk = Disk()
    results = {file.path.resolve(): file.result.source for file in report.files if folders}
    files: dict[Path, bytes] = {}
    for at, importing in folders.items():
        there = bundled_target(at)
        if there is None and not _is_free(at):
            report.errors.append(f"{at}: in the way of the runtime of the same name")
            continue
        if not at.resolve().is_relative_to(project_root(at.parent.resolve())):
            report.errors.append(f"{at}: is a link that leads out of the project; not written")
            continue
        if there not in (None, target.label):
            raise UsageError(
                f"{at} is the runtime of {there}: this code was migrated for {there} before; "
                f"migrate the GPU original for {target.label}"
            )
        needed = None if target.portable else _needs(importing, results, worker, bool(there))
        inside = disk.list(at)
        for name, content in bundle(target).of(needed, inside).items():
            if name.partition("/")[0] not in inside or disk.read(at / name) != content:
                files[at / name] = content
    return files


def _needs(
    importing: list[FileReport], results: Mapping[Path, bytes], worker: Worker, is_there: bool
) -> Needs | None:
    """What the programs of some files need of the runtime; None for all of it.

    Of a module alone nobody knows how its program calls it: it gets all, or what is there.
    """
    if worker.config.runtime == "whole":
        return None
    programs: dict[Path, None] = {}
    entered = False
    for file in importing:
        path = file.path.resolve()
        entered |= SET_UP in file.result.source
        programs |= dict.fromkeys([path, *sorted(worker.project(path).reached())])
    sources: list[tuple[bytes, Callable[[str], bool]]] = []
    left = needs.MOST
    for path in programs:
        source = results.get(path) or worker.given.get(path) or Disk().read(path)
        left -= len(source or b"")
        if source is None or path.suffix != ".py" or left < 0:
            return None
        sources.append((source, partial(_is_own, worker.project(path))))
    if not entered and not is_there:
        return None
    return needs.needs(sources)


def _is_own(project: ProjectFacts, module: str) -> bool:
    return project.resolve(module) is not None


def _is_free(folder: Path) -> bool:
    """Whether nothing is there, but for what a run leaves that was cut off."""
    if not witness.lexists(folder):
        return True
    return witness.isdir(folder) and all(map(is_temporary, witness.names(folder)))


def _as_given(folder: Path, file: Path) -> Path:
    """`folder` (absolute) spelled like `file` was given, so that reports show short paths."""
    for parent in file.parents:
        if parent.resolve() == folder:
            return parent
    return folder
