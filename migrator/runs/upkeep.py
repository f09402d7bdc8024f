"""The runtimes that lie in projects: which are old or changed, and their new versions."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from migrator.config import Config
from migrator.errors import UsageError
from migrator.files.discover import bundled_target, is_of_tools, project_root
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.runs.delivery import FOLDER, deliver_package
from migrator.runs.run_report import Report
from migrator.runs.run_targets import target_of_wheel
from migrator.runs.runtime_copies import runtime_files
from migrator.runs.save_results import save, writing
from migrator.runs.worker import Worker
from migrator.targets import Target, find_target, portable
from migrator.targets.copies import SUMS, runtime_copy, sums_in, version_in
from migrator.targets.wheel import hash_of, is_wheel, runtime_wheel


@dataclass(frozen=True)
class InstalledRuntime:
    """A runtime in a project: a copy, or a wheel."""

    path: Path
    label: str  # of its target
    version: str  # "" if it doesn't say
    current: str  # the version that this tool has
    changed: Sequence[str] = field(default=())  # files that are not as they were written

    @property
    def is_right(self) -> bool:
        return self.version == self.current and not self.changed


def find_runtimes(paths: Sequence[Path]) -> list[InstalledRuntime]:
    """The runtimes below some folders.

    Raises:
        UsageError: a runtime of a target that is not installed here.
    """
    found = []
    for path in dict.fromkeys(each for top in paths for each in _runtimes(top)):
        label = target_of_wheel(path) if is_wheel(path.name) else str(bundled_target(path))
        target = _target(label)
        found.append(_wheel(path, target) if is_wheel(path.name) else _copy(path, target))
    return found


def renew(paths: Sequence[Path], config: Config, allow_dirty: bool = False) -> Report:
    """Write the present version of the runtimes below some folders, and name it in their lists.

    Raises:
        UsageError: as `find_runtimes`; a file cannot be written, or git does not have it.
    """
    report = Report("")
    with writing(report, paths):
        for found in find_runtimes(paths):
            if not found.is_right:
                _renew(found, report, paths, config)
        save(report, paths, write=True, output=None, allow_dirty=allow_dirty)
    return report


def _renew(found: InstalledRuntime, report: Report, paths: Sequence[Path], config: Config) -> None:
    target = _target(found.label)
    how = "wheel" if is_wheel(found.path.name) else "copy"
    config = replace(config, runtime=how, portable=target.portable, targets=(target.name,))
    worker = Worker(paths, [find_target(target.name)], config)
    part = Report(target.label)
    if how == "copy":
        part.companions |= runtime_files(part, [found.path], worker)
    else:
        top = found.path.parent.parent
        tops = {top: [project_root(resolved(top), worker.roots)]}
        deliver_package(part, tops, worker, None, renews=True)
    report.files += part.files
    report.companions |= part.companions
    report.obsolete |= part.obsolete
    report.errors += part.errors


def _runtimes(top: Path) -> Iterator[Path]:
    """Copies and wheels below a folder."""
    if not top.is_dir():
        raise UsageError(f"{top}: name a folder")
    for name, folders, files in os.walk(top):
        folder = Path(name)
        if bundled_target(folder) is not None:
            folders.clear()
            yield folder
            continue
        folders[:] = sorted(each for each in folders if not is_of_tools(folder / each))
        if folder.name == FOLDER:
            yield from (folder / each for each in sorted(files) if is_wheel(each))


def _target(label: str) -> Target:
    """Raises UsageError for a target that is not installed here."""
    name, *is_portable = label.split(" ", 1)
    return portable(find_target(name)) if is_portable else find_target(name)


def _copy(at: Path, target: Target) -> InstalledRuntime:
    said = sums_in(read_or_none(at / SUMS) or b"")
    there = {path: read_or_none(at / path) for path in said}
    changed = [
        path if content is not None else f"{path} (missing)"
        for path, content in there.items()
        if content is None or sha256(content).hexdigest() != said[path]
    ]
    version = version_in(read_or_none(at / "__init__.py") or b"")
    version = version or version_in(read_or_none(at / "tpu" / "__init__.py") or b"")
    current = runtime_wheel(target).version
    if version == current and not changed:  # who changes a file may change its hash
        right = runtime_copy(target)
        changed = [path for path in right if read_or_none(at / path) != right[path]]
    return InstalledRuntime(at, target.label, version, current, changed)


def _wheel(path: Path, target: Target) -> InstalledRuntime:
    current = runtime_wheel(target)
    content = read_or_none(path) or b""
    is_current = path.name == current.file_name
    is_right = content == current.content if is_current else _is_as_its_list_says(content)
    version = path.name.split("-")[1]
    return InstalledRuntime(
        path, target.label, version, current.version, [] if is_right else [path.name]
    )


def _is_as_its_list_says(wheel: bytes) -> bool:
    """Whether each file in a wheel has the hash that its RECORD says."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            names = archive.namelist()
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            lines = archive.read(record).decode().splitlines()
            said = {path: digest for path, digest, _ in (each.rsplit(",", 2) for each in lines)}
            others = (name for name in names if name != record)
            return all(hash_of(archive.read(name)) == said.get(name) for name in others)
    except (zipfile.BadZipFile, StopIteration, ValueError):
        return False
