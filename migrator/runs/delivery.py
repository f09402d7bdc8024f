"""The runtime as a package: a wheel in the project, and requirements that name it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath

from migrator.files.discover import Disk
from migrator.files.places import resolved
from migrator.formats import kinds, toml
from migrator.runs.run_report import FileReport, Report
from migrator.runs.runtime_copies import Uses
from migrator.runs.worker import Worker
from migrator.targets import Delivered, portable
from migrator.targets.wheel import RuntimeWheel, runtime_wheel

FOLDER = "vendor"  # at the top of a project


def deliver(
    report: Report, uses: Uses, worker: Worker, copied: Path | None = None
) -> Collection[Path]:
    """Let each project that uses the runtime have its wheel, and name it where it lists packages.

    `copied` is the folder of which a copy is written: the wheel lies at its top. Returns the
    folders of wheels.
    """
    if not uses:
        return ()
    target = portable(worker.target) if worker.config.portable else worker.target
    wheel, tops = runtime_wheel(target), _tops(uses, worker, copied)
    is_written = worker.config.runtime == "wheel"
    for top in tops if is_written else ():
        _write(wheel, top, report)
    worker.delivered = {
        root: Delivered(wheel.name, wheel.requirement, _at(top, wheel) if is_written else None)
        for top, roots in tops.items()
        for root in roots
    }
    named = _renew_lists(report, worker, wheel)
    for top in tops if is_written else ():
        _copy_into_images(report, top, {resolved(path) for path in named})
    if report.companions or (report.changed and not is_written):
        report.notes += [_way(top, wheel, is_written, named) for top in tops]
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


def _write(wheel: RuntimeWheel, top: Path, report: Report) -> None:
    """Add the wheel, in place of an older one."""
    path, disk = _at(top, wheel), Disk()
    if not resolved(path).is_relative_to(resolved(top)):
        report.errors.append(f"{path}: leads out of the project; not written")
        return
    if disk.read(path) != wheel.content:
        report.companions[path] = wheel.content
    stem = wheel.file_name.partition("-")[0]
    for name in disk.list(path.parent):
        older = path.parent / name
        content = disk.read(older) if name.startswith(f"{stem}-") and older != path else None
        if content is not None:
            report.obsolete[older] = content


def _renew_lists(report: Report, worker: Worker, wheel: RuntimeWheel) -> list[Path]:
    """Let the lists of requirements name the runtime; those that do."""
    named = []
    for number, file in enumerate(report.files):
        if not (kinds.lists_packages(file.path) or kinds.is_notebook(file.path)):
            continue
        file = report.files[number] = _with_source(worker(file.path), worker, wheel)
        if wheel.version.encode() in file.result.source:
            named.append(file.path)
    return named


def _with_source(file: FileReport, worker: Worker, wheel: RuntimeWheel) -> FileReport:
    """A pyproject.toml of uv also says where the wheel is."""
    delivered = worker.delivered.get(worker.project(file.path).root)
    source, folder = file.result.source, resolved(file.path).parent
    if file.path.name != "pyproject.toml" or delivered is None or delivered.wheel is None:
        return file
    if wheel.requirement.encode() not in source:
        return file
    if b"[tool.uv" not in source and not (folder / "uv.lock").exists():
        return file
    path = Path(os.path.relpath(resolved(delivered.wheel), folder)).as_posix()
    new = toml.with_uv_source(source.decode("utf-8"), wheel.name, path)
    return replace(file, result=replace(file.result, source=new.encode("utf-8")))


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


def _way(top: Path, wheel: RuntimeWheel, is_written: bool, named: Iterable[Path]) -> str:
    """How programs get the runtime, in one line."""
    what = _at(top, wheel).as_posix() if is_written else f"'{wheel.requirement}'"
    said = f"to install the runtime of the migrated code: pip install {what}"
    lists = [str(path) for path in named]
    return f"{said} (named by {', '.join(lists)})" if lists else said
