"""A run: files in, results and a report out. Here the engine meets the file system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from migrator.analysis.import_verdicts import imports_of
from migrator.codes import UNREADABLE
from migrator.config import Config
from migrator.diagnostics import shortened
from migrator.errors import UsageError
from migrator.files import copying, in_place
from migrator.files.discover import discover, is_passed_over
from migrator.files.journal import TakenBack
from migrator.files.lock import only_writer
from migrator.files.overwriting import ignored, untracked
from migrator.files.reading import read_file
from migrator.files.user_folders import meant_instead, resolved
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.registry import check_packages
from migrator.runs.cross_file import (
    files_of_projects,
    is_code,
    keep_requirements_of_other_code,
    keep_settings_of_programs_that_stay,
    lacks_program,
)
from migrator.runs.delivery import deliver
from migrator.runs.divide_files import part_of
from migrator.runs.group import migrate_group
from migrator.runs.named_files import (
    Programs,
    folders_above,
    parts_of_projects,
    programs_of,
    settle,
)
from migrator.runs.pool import migrate_all
from migrator.runs.run_report import FileReport, Report, limited
from migrator.runs.run_targets import chosen_targets, label, without_target
from migrator.runs.save_results import looking, projects_of, save, writing
from migrator.runs.worker import Worker, failed
from migrator.targets import DEFAULT, Target, find_target, in_one_process


def migrate_source(source: str, target: str = DEFAULT, config: Config | None = None) -> Result:
    """Migrate one piece of source text on its own, without facts of other files."""
    options = (config or Config()).options
    return migrate_file(Path("<source>"), source.encode(), find_target(target), options)


def migrate_paths(
    paths: Sequence[str | os.PathLike[str]],
    target: str | Sequence[str] = DEFAULT,
    *,
    config: Config | None = None,
    write: bool = False,
    output: str | os.PathLike[str] | None = None,
    allow_dirty: bool = False,
    diff_base: str | None = None,
    from_hook: bool = False,
    only_named: bool = False,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    part: tuple[int, int] = (1, 1),
) -> Report:
    """Migrate files and folders.

    Args:
        paths: files and folders, with those files of the project that they need.
        target: the name of one, or of one for each framework.
        write: rewrite in place; else nothing is written but to `output`.
        output: write a migrated copy of the one path there instead.
        allow_dirty: write over files that version control does not hold.
        diff_base: report what concerns lines that differ from this revision of git's, or from the
            default branch ("auto"), and nothing else.
        from_hook: nobody chose the files: what a search would pass over is passed over, and so are
            programs that would change elsewhere, too, and settings without GPU code.
        only_named: files stand for themselves; others of their programs are left behind.
        progress: called with (files done, files in all).
        executor: its workers have this version, and the files under the same paths.
        part: (2, 5) looks at the second of five parts of the files, no program divided.

    Raises:
        UsageError: a path that does not exist, an output that is not empty, unsafe overwriting,
            a file that cannot be written (then none is), another run that writes there, a
            `diff_base` that git does not know; with it, or a part, something is to be written.
    """
    started, config = time.perf_counter(), config or Config()
    if write or output is not None:
        _check_whole(diff_base, part)
    roots, wanted = _roots(paths, output), chosen_targets(target)
    check(config, wanted[0])
    report, is_whole = Report(target=label(wanted)), diff_base is None and part[1] == 1
    with writing(report, roots) if write else looking(report, roots):
        every = _discovered(report, roots, config, from_hook)
        worker = _worker(every, roots, wanted, config)
        _tell_changes_alone(report, diff_base)
        programs = _programs(every if is_whole else (), roots, worker, from_hook)
        files = every if only_named else sorted({*every, *programs.others})
        migrated = migrate_all(_chosen(files, report, worker, part), worker, progress, executor)
        report.files = [*migrated.files]
        settle(report, programs, worker, only_named=only_named, from_hook=from_hook)
        around = files_of_projects(roots, config) if from_hook else every
        _judge_together(report, () if from_hook else roots, around, worker)
        uses = migrated.uses if is_whole and not programs.others else None
        to, beside = _copied(roots, output), every if part[1] > 1 else ()
        folders = deliver(report, uses, worker, to, from_hook=from_hook, beside=beside)
        save(report, roots, write, output, allow_dirty, () if only_named else programs.others)
    of_folders = is_whole and not from_hook and any(path.is_dir() for path in roots)
    return _summed_up(report, folders, worker, started, of_folders)


def _worker(
    files: Sequence[Path], roots: Sequence[Path], wanted: Sequence[Target], config: Config
) -> Worker:
    """A worker that knows the projects of named files."""
    worker = Worker(roots, wanted, config)
    above = folders_above(_all_files(files, roots), worker)
    return Worker([*roots, *above], wanted, config) if above else worker


def _programs(
    files: Sequence[Path], roots: Sequence[Path], worker: Worker, from_hook: bool
) -> Programs:
    """The programs of named files, and of folders that are a part of their project."""
    parts = parts_of_projects(() if from_hook else roots, worker)
    return programs_of(_all_files(files, roots, parts), worker, from_hook, parts)


def _summed_up(
    report: Report, folders: Collection[Path], worker: Worker, started: float, of_folders: bool
) -> Report:
    """The report, with what only shows when all of a run is done."""
    code = [file.path for file in report.files if is_code(file.path)]
    report.find_imports = lambda: imports_of(map(worker.project, code))
    report.notes += without_target(report.files, worker.targets)
    report.untracked = untracked(folders)
    wheels = (each.what for each in report.deliveries if isinstance(each.what, Path))
    report.notes += [f"{path} is ignored by git: git add -f {path}" for path in ignored(wheels)]
    report.lacks_program = of_folders and lacks_program(report.files)
    report.seconds = time.perf_counter() - started
    return report


def migrate_content(
    path: Path,
    content: bytes,
    target: str | Sequence[str] = DEFAULT,
    *,
    config: Config | None = None,
) -> Report:
    """Migrate what a file holds somewhere else than on the disk: in a pipe, in an editor.

    The facts are those of the project around `path`, which need not exist. A file that a search
    passes over comes back as it is. Nothing is written.

    Raises:
        UsageError: an unknown target, or another target's runtime beside the file.
    """
    started = time.perf_counter()
    config = config or Config()
    wanted = chosen_targets(target)
    report = Report(label(wanted))
    if is_passed_over(path, config.home, config.excluded):
        report.files = [FileReport(path, Result(content, content))]
    else:
        worker = Worker([], wanted, config, {resolved(path): content})
        migrated = migrate_group([path], worker)
        (file,) = migrated.files
        if file.result.original != content:  # could not be processed
            file = replace(file, result=replace(file.result, original=content, source=content))
        report.files = [file]
        deliver(report, migrated.uses, worker)
    report.seconds = time.perf_counter() - started
    return report


def check(config: Config, target: Target) -> None:
    """Raise UsageError for options that the target lacks, and for a broken rule package."""
    check_packages()
    devices = in_one_process(target).api.devices
    if config.shard == "fsdp" and (devices is None or devices.sharded is None):
        raise UsageError(f"--shard fsdp: not supported on {target.name}; choose another target")
    if config.portable and target.runtime is None and not target.portable:
        raise UsageError(f"--portable: not supported on {target.name}")
    divides = devices is not None and target.offers("shard")
    if config.options.tensor_parallel and (config.portable or not divides):
        how = " --portable" if config.portable else ""
        raise UsageError(f"--shard {config.shard}: {target.name}{how} has no divided models")


def strip_todos(
    paths: Sequence[str | os.PathLike[str]],
    *,
    config: Config | None = None,
    write: bool = False,
    output: str | os.PathLike[str] | None = None,
    allow_dirty: bool = False,
) -> Report:
    """Take the comments of `--todo-comments` out of files, and do nothing else; for any target.

    Arguments and exceptions as for `migrate_paths`.
    """
    started = time.perf_counter()
    roots = _roots(paths, output)
    report = Report(target="")
    with writing(report, roots) if write else looking(report, roots):
        report.files = [_stripped(f) for f in _discovered(report, roots, config or Config())]
        save(report, roots, write, output, allow_dirty)
    report.seconds = time.perf_counter() - started
    return report


def _stripped(path: Path) -> FileReport:
    try:
        content = read_file(path)
    except OSError as error:
        return failed(path, UNREADABLE, f"cannot be read: {error.strerror or error}")
    from migrator.pipeline import todo

    return FileReport(path, Result(content, todo.strip(path, content)))


def existing(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The paths. Raises UsageError for one that does not exist."""
    found = [Path(path) for path in paths]
    for path in found:
        try:
            path.stat()
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file or folder{meant_instead(path)}") from None
        except OSError as error:
            raise UsageError(f"{shortened(str(path))}: {error.strerror or error}") from None
    return found


def _roots(
    paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] | None
) -> list[Path]:
    roots = existing(paths)
    if output is not None:
        if len(roots) != 1:
            raise UsageError("-o takes exactly one path")
        copying.check_output(roots[0], Path(output))
    return roots


def _discovered(
    report: Report, roots: Sequence[Path], config: Config, from_hook: bool = False
) -> list[Path]:
    found = discover(roots, config.excluded, config.home if from_hook else None)
    report.errors += [f"{path}: {reason}" for path, reason in found.errors]
    report.notes += [f"{path}: {reason}" for path, reason in found.passed_over]
    if found.excluded and not found.files:
        report.notes.append(f"all that is there is excluded, by {' '.join(config.excluded)}")
    return found.files


def _all_files(
    files: Sequence[Path], roots: Sequence[Path], folders: Sequence[Path] = ()
) -> list[Path]:
    """The files that were named one by one, and those found in some of the folders."""
    given = {*roots}
    return [path for path in files if path in given or any(map(path.is_relative_to, folders))]


def _check_whole(diff_base: str | None, part: tuple[int, int]) -> None:
    """Raise UsageError for a run that writes but doesn't look at all of its files."""
    if diff_base is not None:
        raise UsageError("--diff-base only shows, since files are written whole: add --check")
    if part[1] > 1:
        raise UsageError("--part only shows, since programs share their runtime: add --check")


def _tell_changes_alone(report: Report, diff_base: str | None) -> None:
    if diff_base is None:
        return
    from migrator.files.revisions import Changes

    report.changes = changes = Changes(diff_base)
    report.since = ", ".join(changes.bases)


def _chosen(
    files: Sequence[Path], report: Report, worker: Worker, part: tuple[int, int]
) -> Sequence[Path]:
    """The files that differ from a revision, and that are in a part of the run."""
    if report.changes is not None:
        files = [path for path in files if report.changes.touched(path)]
    return files if part[1] == 1 else part_of(files, worker, *part)


def _copied(roots: Sequence[Path], output: str | os.PathLike[str] | None) -> Path | None:
    """The folder of which a copy is to be written."""
    if output is None:
        return None
    return resolved(roots[0]) if roots[0].is_dir() else resolved(roots[0]).parent


def _judge_together(
    report: Report, named: Sequence[Path], others: Iterable[Path], worker: Worker
) -> None:
    """Adjust each file's result to the others, and to what the run should report."""
    keep_requirements_of_other_code(report, named, others, worker)
    keep_settings_of_programs_that_stay(report, others, worker)
    if report.changes is not None:
        report.files = [limited(file, report.changes) for file in report.files]


def undo(paths: Sequence[str | os.PathLike[str]], *, look: bool = False) -> TakenBack:
    """Take back what the last run has written in place in the projects of some paths.

    Args:
        look: only say what would become of its files.

    Raises:
        UsageError: there is no such run, a file was edited since, or can't be written, another run
            writes there. Nothing is undone then.
    """
    tops = projects_of(_roots(paths, None))
    with nullcontext() if look else only_writer(tops):
        return in_place.undo(tops, look=look)
