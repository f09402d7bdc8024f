"""Copies of the runtime: where a migrated project needs one, and which files are missing there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from migrator.analysis import needs
from migrator.analysis.needs import MOST
from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.traces import quotes
from migrator.errors import UsageError
from migrator.files import in_place, witness
from migrator.files.discover import Disk, bundled_target, discover, project_root
from migrator.files.in_place import Change
from migrator.files.lock import only_writer
from migrator.files.places import resolved
from migrator.files.reading import read_or_none
from migrator.files.staging import is_temporary
from migrator.pipeline.normalise import foreign
from migrator.pipeline.own_module import own_module
from migrator.pipeline.result import Result
from migrator.runs.bundle import Needs, bundle
from migrator.runs.run_report import FileReport, Report
from migrator.runs.worker import Worker
from migrator.targets import RUNTIME, Target, portable, targets

SET_UP = f"{RUNTIME}.setup(".encode()  # functions that a migrated program calls


@dataclass(frozen=True)
class Use:
    """How some files of a run use a copy of the runtime."""

    file: Path  # a file that imports it
    needs: Needs | None  # words of their programs, if these are small enough to be read
    size: int = 0  # bytes of these programs
    is_entered: bool = False  # whether a program calls setup

    def __add__(self, other: Use) -> Use:
        needs = self.needs and other.needs and self.needs + other.needs
        size, is_entered = self.size + other.size, self.is_entered or other.is_entered
        return Use(self.file, needs if size <= MOST else None, size, is_entered)


Uses = Mapping[Path, Use]  # by the folder that the runtime is imported from


def runtime_beside(path: Path, worker: Worker) -> dict[Path, bytes]:
    """The files of the runtime that are missing, or of another version, for one migrated file.

    Raises:
        UsageError: another folder of that name is in the way, or the runtime of another target.
    """
    result = Result(b"", b"", companions=frozenset({RUNTIME}))
    report = Report(worker.target.name)
    uses = runtime_uses([FileReport(path, result)], worker, [*worker.roots, path.parent])
    files = runtime_files(report, runtime_folders(uses), worker)
    if report.errors:
        raise UsageError(report.errors[0])
    return files


def write_beside(files: Mapping[Path, bytes], root: Path) -> None:
    """Write files of the runtime into a project, as a run does. Raises UsageError."""
    with only_writer([root]):
        in_place.recover([root])
        in_place.write({root: [Change(p, read_or_none(p), new) for p, new in files.items()]})


def runtime_uses(
    files: Sequence[FileReport], worker: Worker, roots: Sequence[Path] = ()
) -> dict[Path, Use]:
    """The folders that migrated files import the runtime from, and the parts they need."""
    importing: dict[Path, list[FileReport]] = {}
    for file in files:
        if RUNTIME in file.result.companions and own_module(worker.project(file.path)) is None:
            root = worker.project(file.path, roots).import_root(file.result.source)
            importing.setdefault(root, []).append(file)
    results = {resolved(file.path): file.result.source for file in files if importing}
    return {root: _use(found, results, worker) for root, found in importing.items()}


def joined(parts: Iterable[Uses]) -> dict[Path, Use]:
    """Everything that all parts of a run need together."""
    found: dict[Path, Use] = {}
    for uses in parts:
        for root, use in uses.items():
            found[root] = found[root] + use if root in found else use
    return found


def runtime_folders(uses: Uses, copied: Path | None = None) -> dict[Path, Use]:
    """The folders that need a copy of the runtime; for a copy of `copied`, inside it."""
    folders: dict[Path, Use] = {}
    for root, use in uses.items():
        if copied is not None and not root.is_relative_to(copied):
            root = copied  # a copy can't write above itself
        at = _as_given(root, use.file) / RUNTIME
        folders[at] = folders[at] + use if at in folders else use
    return folders


def runtime_files(report: Report, folders: Mapping[Path, Use], worker: Worker) -> dict[Path, bytes]:
    """The runtime's files that its programs need and that are missing or of another version."""
    target = portable(worker.target) if worker.config.portable else worker.target
    disk = Disk()
    files: dict[Path, bytes] = {}
    for at, use in folders.items():
        there = bundled_target(at)
        if there is None and not _is_free(at):
            report.errors.append(f"{at}: the runtime needs this name")
            continue
        if not resolved(at).is_relative_to(project_root(resolved(at.parent))):
            report.errors.append(f"{at}: is a link that leads out of the project; not written")
            continue
        other = there if there != target.label else None  # that is replaced
        if other is not None:
            _refuse_use(at, other, report, worker)
        needed = use.needs if (use.is_entered or there) and not target.asks_runtime else None
        inside = frozenset() if other else disk.list(at)
        for name, content in bundle(target).of(needed, inside).items():
            if name.partition("/")[0] not in inside or disk.read(at / name) != content:
                files[at / name] = content
        if other is not None:
            report.obsolete |= _replaced(at, files)
    return files


def _refuse_use(at: Path, label: str, report: Report, worker: Worker) -> None:
    """Refuse to replace another target's runtime that some file will still need."""
    results = {resolved(file.path): file.result.source for file in report.files}
    owner = targets().get(label.partition(" ")[0])
    for path in discover([at.parent], worker.config.excluded).files:
        source = results.get(resolved(path)) or Disk().read(path) or b""
        if owner is None or foreign(source, worker.target) or _names_device(source, owner):
            raise UsageError(
                f"{at} is {label}'s runtime, which {path} would still need; migrate all of "
                f"{at.parent}, or the GPU original, for {worker.target.label}"
            )


def _names_device(source: bytes, target: Target) -> bool:
    return not target.words.device_names and quotes(target.words.device, source)


def _replaced(at: Path, files: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """The modules of a runtime that another runtime lacks."""
    found = {path: read_or_none(path) for path in sorted(at.rglob("*.py")) if path not in files}
    return {path: content for path, content in found.items() if content is not None}


def _use(importing: Sequence[FileReport], results: Mapping[Path, bytes], worker: Worker) -> Use:
    """What the programs of some files need of the runtime.

    Of a module alone nobody knows how its program calls it: it gets all, or what is there.
    """
    first, is_entered = importing[0].path, any(SET_UP in f.result.source for f in importing)
    if worker.config.runtime == "copy":
        return Use(first, None)
    programs: dict[Path, None] = {}
    for file in importing:
        path = resolved(file.path)
        programs |= dict.fromkeys([path, *sorted(worker.project(path).reached())])
    sources: list[tuple[bytes, Callable[[str], bool]]] = []
    size = 0
    for path in programs:
        source = results.get(path) or worker.given.get(path) or Disk().read(path)
        size += len(source or b"")
        if source is None or path.suffix != ".py" or size > MOST:
            return Use(first, None, size, is_entered)
        sources.append((source, partial(_is_own, worker.project(path))))
    return Use(first, needs.needs(sources), size, is_entered)


def _is_own(project: ProjectFacts, module: str) -> bool:
    return project.resolve(module) is not None


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
