"""How programs get the runtime: from a wheel in the project, an index, or a copy beside them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath

from migrator.analysis.setup_py import reads_list
from migrator.diagnostics import Diagnostic, Range, Severity
from migrator.errors import UsageError
from migrator.files import in_place, witness
from migrator.files.discover import Disk, bundled_target, discover
from migrator.files.in_place import FileChange
from migrator.files.lock import only_writer
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds, toml
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.runs.cross_file import is_code
from migrator.runs.run_report import Delivery, FileReport, Report, limited
from migrator.runs.run_targets import target_of_wheel
from migrator.runs.runtime_copies import (
    Uses,
    refuse_use,
    runtime_files,
    runtime_folders,
    runtime_uses,
)
from migrator.runs.worker import Worker
from migrator.targets import RUNTIME, Delivered, portable
from migrator.targets.wheel import STEM, RuntimeWheel, is_wheel, runtime_wheel

FOLDER = "vendor"  # at the top of a project


def deliver(
    report: Report,
    uses: Uses | None,
    worker: Worker,
    copied: Path | None = None,
    *,
    from_hook: bool = False,
    beside: Iterable[Path] = (),
) -> Collection[Path]:
    """Let the programs of a run have the runtime. Returns the folders that it lies in.

    A copy that is there stays a copy. What is there of another version is renewed, but not by a
    hook that migrates nothing, nor where only changes are looked at.

    Args:
        uses: None where only the report knows them.
        copied: the folder of which a copy is written: the runtime lies inside.
        beside: the files of which those of the report are a part.
    """
    if uses is None:
        uses = _with_other_parts(runtime_uses(report.files, worker), report, beside, worker)
    renews = report.changes is None and (not from_hook or bool(report.changed))
    is_copy = worker.config.runtime == "copy"
    copies = {root: file for root, file in uses.items()
              if is_copy or bundled_target(root / RUNTIME) is not None}  # fmt: skip
    folders = runtime_folders(copies, copied)
    report.companions |= runtime_files(report, folders, worker, renews)
    others = {root: file for root, file in uses.items() if root not in copies}
    tops = _tops(others, worker, copied)
    return [*folders, *deliver_package(report, tops, worker, copied, renews)]


def _with_other_parts(uses: Uses, report: Report, beside: Iterable[Path], worker: Worker) -> Uses:
    """Also the projects of the lists of a part of a run whose code is in its other parts."""
    roots = {
        worker.project(file.path).root
        for file in report.files
        if file_kinds.lists_packages(file.path) and file.result.diagnostics
    }
    roots -= {worker.project(file).root for file in uses.values()}
    found = dict(uses)
    for path in filter(is_code, beside):
        if not roots:
            break
        if (project := worker.project(path)).root in roots:
            result = worker(path).result
            if RUNTIME in result.companions:
                found[project.import_root(result.source)] = path
                roots.discard(project.root)
    return found


def deliver_to(path: Path, worker: Worker) -> Report:
    """What one migrated file lacks of the runtime.

    Raises:
        UsageError: another folder of that name is in the way, or the runtime of another target.
    """
    result = Result(b"", b"", companions=frozenset({RUNTIME}))
    report = Report(worker.target.name)
    uses = runtime_uses([FileReport(path, result)], worker, [*worker.roots, path.parent])
    deliver(report, uses, worker)
    if report.errors:
        raise UsageError(report.errors[0])
    return report


def write_delivered(report: Report, root: Path) -> None:
    """Write the runtime into a project, as a run does. Raises UsageError."""
    with only_writer([root]):
        in_place.recover([root])
        changes = [FileChange(p, read_or_none(p), new) for p, new in report.companions.items()]
        changes += [FileChange(p, old, None) for p, old in report.obsolete.items()]
        changes += [FileChange(f.path, f.result.original, f.result.source) for f in report.changed]
        in_place.write({root: changes})


# ---- as a package --------------------------------------------------------------------------------


def deliver_package(
    report: Report,
    tops: Mapping[Path, Sequence[Path]],
    worker: Worker,
    copied: Path | None,
    renews: bool,
) -> Collection[Path]:
    """Let projects name the runtime where they list packages, and have its wheel if no index has
    it. Returns the folders of wheels.

    `tops` are the folders that get `vendor`, with the projects that each is for.
    """
    if not tops:
        return ()
    target = portable(worker.target) if worker.config.portable else worker.target
    wheel = runtime_wheel(target)
    is_written = worker.config.runtime == "wheel"
    older = {top: [*_older(top, wheel)] if is_written else [] for top in tops}
    tops = {top: roots for top, roots in tops.items() if renews or not older[top]}
    for top in tops if is_written else ():
        _write(wheel, top, older[top], report, worker)
    worker.delivered = {
        root: Delivered(wheel.name, wheel.requirement, _at(top, wheel) if is_written else None)
        for top, roots in tops.items()
        for root in roots
    }
    for top in (top for top in tops if older[top]):
        report.files += _lists_elsewhere(report, top, copied, worker)
    named = _renew_lists(report, worker, wheel)
    if report.changes is None:
        named += [path for top in tops if (path := _name_at_top(report, top, wheel, named, worker))]
    for top in tops if is_written else ():
        _copy_into_images(report, top, {resolved(path) for path in named})
    if report.companions or report.changed:
        for top in tops:
            what = _at(top, wheel) if is_written else wheel.requirement
            inside = [path for path in named if resolved(path).is_relative_to(resolved(top))]
            report.deliveries.append(Delivery(what, tuple(inside)))
    return [top / FOLDER for top in tops if is_written]


def _tops(uses: Uses, worker: Worker, copied: Path | None) -> dict[Path, list[Path]]:
    """Where wheels go, spelled as the report's paths are, with the projects that they are for."""
    tops: dict[Path, list[Path]] = {}
    for file in uses.values():
        root = worker.project(file).root
        top = copied if copied is not None and not root.is_relative_to(copied) else root
        given = next((each for each in file.parents if resolved(each) == top), top)
        if root not in tops.setdefault(given, []):
            tops[given].append(root)
    return tops


def _at(top: Path, wheel: RuntimeWheel) -> Path:
    return top / FOLDER / wheel.file_name


def _older(top: Path, wheel: RuntimeWheel) -> Iterator[Path]:
    """The wheels of the runtime that are another version's."""
    for name in sorted(Disk().list(top / FOLDER)):
        if is_wheel(name) and name != wheel.file_name:
            yield top / FOLDER / name


def _write(
    wheel: RuntimeWheel, top: Path, older: Iterable[Path], report: Report, worker: Worker
) -> None:
    """Add the wheel, in place of older ones."""
    path, disk = _at(top, wheel), Disk()
    if not resolved(path).is_relative_to(resolved(top)):
        report.errors.append(f"{path}: leads out of the project; not written")
        return
    for other in older:
        target = target_of_wheel(other)
        if target != wheel.target:
            refuse_use(other, target, top, report, worker)
        content = disk.read(other)
        if content is not None:
            report.obsolete[other] = content
    if disk.read(path) != wheel.content:
        report.companions[path] = wheel.content


def _lists_elsewhere(
    report: Report, top: Path, copied: Path | None, worker: Worker
) -> list[FileReport]:
    """The lists of a project that name the runtime, and that are not among the run's files."""
    known, found = {resolved(file.path) for file in report.files}, []
    for path in discover([top], worker.config.excluded).files:
        if not _may_name_runtime(path) or resolved(path) in known:
            continue
        inside = copied is None or resolved(path).is_relative_to(copied)
        content = Disk().read(path) if inside else None
        if content is not None and (b"tpu-runtime" in content or STEM.encode() in content):
            found.append(FileReport(path, Result(content, content)))
    return found


def _may_name_runtime(path: Path) -> bool:
    return file_kinds.lists_packages(path) or file_kinds.is_notebook(path)


def _renew_lists(report: Report, worker: Worker, wheel: RuntimeWheel) -> list[Path]:
    """Let the lists of requirements name the runtime; those that do."""
    named = []
    for number, file in enumerate(report.files):
        if not worker.delivered or not _may_name_runtime(file.path):
            continue
        file = _with_source(worker(file.path), worker, wheel)
        if report.changes is not None:
            file = limited(file, report.changes)
        report.files[number] = file
        if wheel.version.encode() in file.result.source:
            named.append(file.path)
    return named


def _name_at_top(
    report: Report, top: Path, wheel: RuntimeWheel, named: Iterable[Path], worker: Worker
) -> Path | None:
    """Add the runtime to requirements.txt at the top of a project where no list has it, since none
    has torch. Returns the file."""
    real = resolved(top)
    if any(resolved(path).is_relative_to(real) for path in named):
        return None
    for number, file in enumerate(report.files):
        result = file.result
        if resolved(file.path) != real / "requirements.txt" or result.failed:
            continue
        if b"--hash" in result.source or reads_list(file.path, read_or_none):
            return None  # pip then wants one for each; setuptools takes no folder
        source = naming(wheel.requirement, result.source, worker.config.runtime == "wheel")
        last = result.original.count(b"\n") + 1
        place = Range(last, 1, last, 1)
        rules = registry().of(worker.target.framework).rules
        code = next(code for code, rule in rules.items() if rule.is_requirement)
        added = Diagnostic(place, code, Severity.INFO, "added", touched=(place,))
        new = replace(result, source=source, diagnostics=(*result.diagnostics, added))
        report.files[number] = replace(file, result=new)
        return file.path
    return None


def naming(requirement: str, source: bytes, is_in_project: bool) -> bytes:
    """A requirements.txt with the runtime at its end."""
    lines = [*[f"--find-links {FOLDER}"] * is_in_project, requirement]
    end = b"\r\n" if b"\r\n" in source else b"\n"
    before = source + end * (source[-1:] not in (b"", b"\n"))
    return before + b"".join(each.encode() + end for each in lines)


def named_as_in(after: bytes, result: Result, delivered: Delivered) -> Result:
    """The result for a requirements.txt, with the runtime if only what it has become names it."""
    wanted = delivered.requirement
    if wanted.encode() in result.source or wanted.encode() not in after:
        return result
    return replace(result, source=naming(wanted, result.source, delivered.wheel is not None))


def _with_source(file: FileReport, worker: Worker, wheel: RuntimeWheel) -> FileReport:
    """A pyproject.toml of uv or pixi also says where the wheel is."""
    delivered = worker.delivered.get(worker.project(file.path).root)
    source, folder = file.result.source, resolved(file.path).parent
    if file.path.name != "pyproject.toml" or delivered is None or delivered.wheel is None:
        return file
    if wheel.requirement.encode() not in source:
        return file
    path = PurePath(os.path.relpath(resolved(delivered.wheel), folder))
    text = source.decode("utf-8")
    if "[tool.uv" in text or witness.exists(folder / "uv.lock"):
        text = toml.with_uv_source(text, wheel.name, path.as_posix())
    if "[tool.pixi" in text:
        text = toml.with_pixi_links(text, path.parent.as_posix())
    return replace(file, result=replace(file.result, source=text.encode("utf-8")))


# A line of a Dockerfile that copies one file.
_COPY = re.compile(rb"^(?:COPY|ADD)[ \t]+(?:--\S+[ \t]+)*(\S+)[ \t]+(\S+?)[ \t]*(\r?\n|\Z)", re.M)


def _copy_into_images(report: Report, top: Path, named: Container[Path]) -> None:
    """Let Dockerfiles copy the wheel's folder beside a list that names it."""
    for number, file in enumerate(report.files):
        source = file.result.source
        if "ockerfile" not in file.path.name or FOLDER.encode() in source:
            continue
        for base in (resolved(top), resolved(file.path).parent):  # what an image is built from
            found = next(
                (m for m in _COPY.finditer(source) if base / os.fsdecode(m[1]) in named), None
            )
            folder = os.path.relpath(resolved(top) / FOLDER, base)
            if found is None or folder.startswith(os.pardir):
                continue
            to = PurePosixPath(os.fsdecode(found[2]))
            to = to if found[2].endswith((b"/", b".")) else to.parent
            line = f"COPY {PurePath(folder).as_posix()} {to.as_posix()}/{FOLDER}".encode()
            end = found[3] or b"\n"
            before = source[: found.end()] + (b"" if found[3] else end)
            new = before + line + end + source[found.end() :]
            report.files[number] = replace(file, result=replace(file.result, source=new))
            break
