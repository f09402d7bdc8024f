"""A run: files in, results and a report out. The one place where the engine meets the disk."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from migrator import programs, todo
from migrator.analyse import may_hold_constructs
from migrator.analysis import needs
from migrator.analysis.facts import ProjectFacts
from migrator.analysis.project_cache import ProjectCache
from migrator.analysis.readers import Reader
from migrator.bundle import Needs, bundle
from migrator.codes import INTERNAL, TOO_LARGE, UNREADABLE
from migrator.config import Config
from migrator.diagnostics import START, Diagnostic, Outcome, Severity, shortened
from migrator.engine import migrate_file
from migrator.errors import UsageError
from migrator.files import copying, in_place
from migrator.files.discover import Disk, bundled_target, discover, is_passed_over, project_root
from migrator.files.in_place import Change
from migrator.files.journal import TakenBack
from migrator.files.lock import only_writer
from migrator.files.overwriting import untracked
from migrator.files.reading import read, read_or_none
from migrator.files.revisions import Changes, brought
from migrator.files.staging import is_temporary
from migrator.formats import lines, notebook
from migrator.formats.embedded import CONSTRAINT, REQUIREMENT, SETTING
from migrator.normalise import AsGpuCode
from migrator.options import Options
from migrator.registry import check_packages, registry
from migrator.result import Result
from migrator.targets import RUNTIME, Target, find_target, portable

MAX_BYTES = 4 * 2**20  # larger files are generated; parsing one would take minutes
SET_UP = f"{RUNTIME}.setup(".encode()
MAX_NOTEBOOK = 2**28  # with pictures in it, which are not parsed
_POOL_BYTES = 600_000  # below this, starting processes costs more than it saves


@dataclass(frozen=True)
class FileReport:
    path: Path
    result: Result
    unsafe: Counter[str] = field(default_factory=Counter)  # what --unsafe would rewrite, by code
    whole: Result | None = None  # with what is not about the change that the run tells of


@dataclass
class Report:
    """The summary of a run, and its exit code."""

    target: str
    files: list[FileReport] = field(default_factory=list)
    companions: dict[Path, bytes] = field(default_factory=dict)  # files that are new or differ
    errors: list[str] = field(default_factory=list)  # about no single source file
    notes: list[str] = field(default_factory=list)  # what else there is to know
    output: Path | None = None  # where a copy was written
    copied: Path | None = None  # the folder that it is a copy of
    changes: Changes | None = None  # what the run tells of alone; None: all
    since: str = ""  # the revision that it tells the changes from; "": it tells all
    untracked: list[Path] = field(default_factory=list)  # runtimes that git does not have
    lacks_program: bool = False  # none of a folder's files switches the target on
    seconds: float = 0.0

    def written_to(self, path: Path) -> Path:
        """Where a file lies that has been written."""
        if self.output is None or self.copied is None:
            return path
        return self.output / _relative(path, self.copied)

    @property
    def changed(self) -> list[FileReport]:
        return [f for f in self.files if f.result.changed]

    def diagnostics(self, *outcomes: Outcome) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d) for f in self.files for d in f.result.diagnostics if d.outcome in outcomes
        ]

    @property
    def unsafe(self) -> Counter[str]:
        """How many constructs --unsafe would rewrite, by the code of the rule."""
        return sum((f.unsafe for f in self.files), Counter())

    def count(self, outcome: Outcome) -> int:
        return len(self.diagnostics(outcome))

    @property
    def failures(self) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d)
            for f in self.files
            for d in f.result.diagnostics
            if d.severity is Severity.ERROR
        ]

    @property
    def advice(self) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d)
            for f in self.files
            for d in f.result.diagnostics
            if d.severity is Severity.ADVICE
        ]

    @property
    def exit_code(self) -> int:
        """0, or 2 where a file could not be processed."""
        return 2 if self.errors or self.failures else 0

    def check_code(self, strict: bool = False) -> int:
        """As `exit_code`, and 1 where edits are pending or constructs are left for a person."""
        if self.exit_code:
            return self.exit_code
        pending = self.changed or self.companions or self.count(Outcome.REPORTED)
        return 1 if pending or (strict and self.advice) else 0


def migrate_source(source: str, target: str = "torchax", config: Config | None = None) -> Result:
    """Migrate one piece of source text on its own, without facts of other files."""
    options = (config or Config()).options
    return migrate_file(Path("<source>"), source.encode(), find_target(target), options)


def migrate_paths(
    paths: Sequence[str | os.PathLike[str]],
    target: str = "torchax",
    *,
    config: Config | None = None,
    write: bool = False,
    output: str | os.PathLike[str] | None = None,
    allow_dirty: bool = False,
    diff_base: str | None = None,
    from_hook: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Migrate files and folders.

    Args:
        paths: files, or folders whose `.py` files are meant.
        target: the name of one; a portable program if `config` says so.
        write: rewrite in place; else nothing is written unless `output` is given.
        output: write a migrated copy of the one path there instead.
        allow_dirty: write over files that version control does not hold.
        diff_base: report what concerns lines that differ from this revision of git's, or from the
            default branch ("auto"), and nothing else.
        from_hook: the files were not chosen by a person: those that a search would pass over are,
            and requirements and settings stay where the project has no GPU code.
        progress: called with (files done, files in all).

    Raises:
        UsageError: a path that does not exist, an output that is not empty, unsafe overwriting,
            a file that can not be written (then none is), another run that writes there, a
            `diff_base` that git does not know, or with which something is to be written.
    """
    started = time.perf_counter()
    config = config or Config()
    if diff_base is not None and (write or output is not None):
        raise UsageError(
            "--diff-base only looks, since a file is written whole: add --check or --diff"
        )
    roots = _roots(paths, output)
    words = find_target(target)
    check(config, words)
    report = Report(target=words.name)
    with _only_writer(report, roots) if write else nullcontext():
        files = every = _discovered(report, roots, config, from_hook)
        changes = Changes(diff_base) if diff_base is not None else None
        if changes is not None:
            files = [path for path in every if changes.touched(path)]
        worker = Worker(roots, words, config)
        report.files = _migrate_all(files, worker, progress)
        _keep_programs_whole(report, worker)
        others: Iterable[Path] = _of_project(roots, config) if from_hook else ()
        if changes is not None:
            others = every
        _keep_what_is_around(report, () if from_hook else roots, others, worker)
        if changes is not None:
            report.files = [_brought(file, changes) for file in report.files]
            report.changes = changes
            report.since = ", ".join(changes.bases)
        folders = _runtimes(report, roots, worker, output is not None)
        report.companions = _companions(report, folders, worker)
        if changes is not None:  # a runtime that is there, of another version, is no one's change
            report.companions = {
                path: content
                for path, content in report.companions.items()
                if not any(bundled_target(folder) for folder in path.parents)
            }
        _save(report, roots, write, output, allow_dirty)
    report.untracked = untracked(folders)
    if changes is None and not from_hook and any(path.is_dir() for path in roots):
        report.lacks_program = _lacks_program(report.files)
    report.seconds = time.perf_counter() - started
    return report


def migrate_content(
    path: Path, content: bytes, target: str = "torchax", *, config: Config | None = None
) -> Report:
    """Migrate what a file holds somewhere else than on the disk: in a pipe, in an editor.

    The facts are those of the project around `path`, which need not exist. A file that a search
    passes over comes back as it is. Nothing is written.

    Raises:
        UsageError: an unknown target, or another target's runtime beside the file.
    """
    started = time.perf_counter()
    config = config or Config()
    words = find_target(target)
    report = Report(words.name)
    if is_passed_over(path, config.home, config.exclude):
        report.files = [FileReport(path, Result(content, content))]
    else:
        worker = Worker([], words, config, {path.resolve(): content})
        file = worker(path)
        report.files = [file]
        _keep_programs_whole(report, worker)
        (file,) = report.files
        if file.result.original != content:  # could not be processed
            file = replace(file, result=replace(file.result, original=content, source=content))
        report.files = [file]
        report.companions = _companions(report, _runtimes(report, [path], worker, False), worker)
    report.seconds = time.perf_counter() - started
    return report


def check(config: Config, target: Target) -> None:
    """Raise UsageError for what the target does not have, and for a rule package with a fault."""
    check_packages()
    devices = target.words.devices
    if config.shard == "fsdp" and (devices is None or devices.sharded is None):
        raise UsageError(f"--shard fsdp: {target.name} has no such models; choose another target")
    if config.options.tensor_parallel and (config.portable or devices is None):
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
    with _only_writer(report, roots) if write else nullcontext():
        report.files = [_stripped(f) for f in _discovered(report, roots, config or Config())]
        _save(report, roots, write, output, allow_dirty)
    report.seconds = time.perf_counter() - started
    return report


def _stripped(path: Path) -> FileReport:
    try:
        content = read(path)
    except OSError as error:
        return _failed(path, UNREADABLE, f"can not be read: {error.strerror or error}")
    return FileReport(path, Result(content, todo.strip(path, content)))


def _roots(
    paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] | None
) -> list[Path]:
    roots = [Path(p) for p in paths]
    for path in roots:
        try:
            path.stat()
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file or folder") from None
        except OSError as error:
            raise UsageError(f"{shortened(str(path))}: {error.strerror or error}") from None
    if output is not None:
        if len(roots) != 1:
            raise UsageError("-o takes exactly one path")
        copying.check_output(roots[0], Path(output))
    return roots


def _discovered(
    report: Report, roots: Sequence[Path], config: Config, from_hook: bool = False
) -> list[Path]:
    found = discover(roots, config.exclude, config.home if from_hook else None)
    report.errors += [f"{path}: {reason}" for path, reason in found.errors]
    report.notes += [f"{path}: {reason}" for path, reason in found.passed_over]
    if found.excluded and not found.files:
        report.notes.append(f"all that is there is excluded, by {' '.join(config.exclude)}")
    return found.files


# ---- migrating -----------------------------------------------------------------------------------


def _migrate_all(
    files: Sequence[Path], worker: Worker, progress: Callable[[int, int], None] | None
) -> list[FileReport]:
    processors = os.cpu_count() or 1
    jobs = min(worker.config.jobs or processors, 4 * processors)
    pooled = jobs > 1 and hasattr(os, "fork") and _work(files, worker.config.options) > _POOL_BYTES
    results: list[FileReport] = []
    if not pooled:
        for path in files:
            results.append(worker(path))
            if progress:
                progress(len(results), len(files))
        return results
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import migrator.tree  # noqa: F401  LibCST, once for all processes

    registry()  # so are the rules

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, _end_with_parent) as pool:
        for result in pool.map(worker, files, chunksize=8):
            results.append(result)
            if progress:
                progress(len(results), len(files))
    return results


def _end_with_parent() -> None:
    """Have a worker notice that nobody waits for it any more."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _keep_programs_whole(report: Report, worker: Worker) -> None:
    """A program that stays in part stays with all its files: half of it would be wrong."""
    worker.hold({file.path: file.result for file in report.files})
    for number, file in enumerate(report.files):
        if file.result.migrated and file.path.resolve() in worker.held:
            report.files[number] = worker(file.path)


def _keep_what_is_around(
    report: Report, named: Sequence[Path], others: Iterable[Path], worker: Worker
) -> None:
    """Requirements and settings of what has no GPU code stay, unless they are named themselves.

    `others` are files where that code may be, beside those of the report.
    """
    around = [
        number
        for number, file in enumerate(report.files)
        if _is_around(file) and file.path not in named
    ]
    if not any(report.files[number].result.diagnostics for number in around):
        return
    if any(map(_is_gpu_code, report.files)):
        return
    seen = {file.path.resolve() for file in report.files}
    if any(_is_gpu_code(worker(path)) for path in others if path.resolve() not in seen):
        return
    for number in around:
        file = report.files[number]
        content = file.result.original
        report.files[number] = FileReport(file.path, Result(content, content))


def _lacks_program(files: Iterable[FileReport]) -> bool:
    """Whether code was rewritten, but no program that starts it: a library."""
    code = [file.result for file in files if lines.kind(file.path) is None]
    if any(SET_UP in result.source for result in code):
        return False
    edits = {d.code for result in code for d in result.diagnostics if d.is_edit}
    return any(rule.moves_to_device for code, rule in registry().rules.items() if code in edits)


def _is_gpu_code(file: FileReport) -> bool:
    result = file.result
    return not _is_around(file) and bool(result.companions or result.migrated)


def _of_project(roots: Sequence[Path], config: Config) -> Iterator[Path]:
    """The files of the projects that some files are in, for when they are asked for."""
    for root in dict.fromkeys(project_root(path.resolve()) for path in roots):
        yield from discover([root], config.exclude).files


def _is_around(file: FileReport) -> bool:
    """Whether it is no code, or only speaks of requirements (setup.py)."""
    if lines.kind(file.path) in (REQUIREMENT, CONSTRAINT, SETTING):
        return True
    codes = {d.code for d in file.result.diagnostics if d.outcome}
    return bool(codes) and codes <= {r.code for r in registry().rules.values() if r.is_requirement}


def _work(files: Iterable[Path], options: Options) -> int:
    """Bytes of the files that will have to be parsed, roughly; counting stops when it is enough."""
    total = 0
    for path in files:
        if lines.kind(path) is not None:
            continue
        try:
            source = read(path, MAX_BYTES) if path.stat().st_size < MAX_BYTES else b""
        except OSError:
            continue
        if may_hold_constructs(source, options):
            total += len(source)
            if total > _POOL_BYTES:
                break
    return total


class Worker:
    """Migrates one file; in a pool, each process grows a project cache of its own.

    `given` is what files hold, whatever is on the disk; `reader` knows the other files in place of
    the disk; `earlier` is what an earlier run knew.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        target: Target,
        config: Config,
        given: Mapping[Path, bytes] | None = None,
        reader: Reader | None = None,
        earlier: ProjectCache | None = None,
    ) -> None:
        self.roots = [root.resolve() for root in roots if root.exists()]
        self.target, self.config = target, config
        self.given = given or {}
        self.disk = AsGpuCode(reader or Disk(self.given), target)
        self.cache = ProjectCache(self.disk, earlier)
        self.held: Mapping[Path, tuple[str, str]] = {}  # files that stay with their programs

    def project(self, path: Path, roots: Sequence[Path] = ()) -> ProjectFacts:
        """The facts of a file of a project that `roots` are of (default: the worker's)."""
        real = path.resolve()
        tops = [root.resolve() for root in roots] or self.roots
        root = project_root(real, tops)
        return ProjectFacts(real, root, self.disk, self.cache, self.held.get(real))

    def hold(self, results: Mapping[Path, Result]) -> None:
        """From now on, keep the files whose programs stay, by what became of some files alone."""
        target = portable(self.target) if self.config.portable else self.target
        self.held = programs.held(results, self.project, target, self.config.options)

    def __call__(self, path: Path) -> FileReport:
        try:
            source = self.given.get(path.resolve()) if self.given else None
            size = path.stat().st_size if source is None else len(source)
            if lines.kind(path) == SETTING and size > MAX_BYTES:
                return FileReport(path, Result(b"", b""))  # data
            if size > (MAX_NOTEBOOK if path.suffix == notebook.SUFFIX else MAX_BYTES):
                message = f"{size / 2**20:.0f} MiB is too large for source; not processed"
                return _failed(path, TOO_LARGE, message)
            if source is None:
                source = read(path)
            return migrated(path, source, self.target, self.config.options, self.project(path))
        except OSError as error:
            return _failed(path, UNREADABLE, f"can not be read: {error.strerror or error}")
        except Exception as error:  # one file's fault must not stop the others
            return _failed(path, INTERNAL, f"internal error: {type(error).__name__}: {error}")


def migrated(
    path: Path,
    content: bytes,
    target: Target,
    options: Options,
    project: ProjectFacts | None = None,
) -> FileReport:
    """One file, migrated, and what --unsafe would add."""
    result = migrate_file(path, content, target, options, project)
    if not any(d.outcome is Outcome.REPORTED and d.safety for d in result.diagnostics):
        return FileReport(path, result)
    more = migrate_file(path, content, target, replace(options, unsafe=True), project)
    return FileReport(path, result, _rewritten(more) - _rewritten(result))


def _rewritten(result: Result) -> Counter[str]:
    return Counter(d.code for d in result.diagnostics if d.outcome is Outcome.REWRITTEN)


def _brought(file: FileReport, changes: Changes) -> FileReport:
    """What of a file is about lines that a change has brought."""
    if not file.result.diagnostics and not file.result.changed:
        return file
    result = brought(file.result, changes.lines(file.path, file.result.original))
    unsafe = Counter(d.code for d in result.diagnostics if d.outcome is Outcome.REPORTED)
    return FileReport(file.path, result, file.unsafe & unsafe, file.result)


def _failed(path: Path, code: str, message: str) -> FileReport:
    diagnostic = Diagnostic(START, code, Severity.ERROR, message)
    return FileReport(path, Result(b"", b"", (diagnostic,)))


# ---- companions ----------------------------------------------------------------------------------


def runtime_beside(path: Path, worker: Worker) -> dict[Path, bytes]:
    """The files of the runtime that are missing, or of another version, for one migrated file.

    Raises:
        UsageError: another folder of that name is in the way, or the runtime of another target.
    """
    result = Result(b"", b"", companions=frozenset({RUNTIME}))
    report = Report(worker.target.name, [FileReport(path, result)])
    folders = _runtimes(report, [*worker.roots, path.parent], worker, False)
    files = _companions(report, folders, worker)
    if report.errors:
        raise UsageError(report.errors[0])
    return files


def write_beside(files: Mapping[Path, bytes], root: Path) -> None:
    """Write files of the runtime into a project, as a run does. Raises UsageError."""
    with only_writer([root]):
        in_place.recover([root])
        in_place.write({root: [Change(p, read_or_none(p), new) for p, new in files.items()]})


def _runtimes(
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


def _companions(
    report: Report, folders: Mapping[Path, list[FileReport]], worker: Worker
) -> dict[Path, bytes]:
    """The runtime's files that its programs need, where they are missing or of another version."""
    target = portable(worker.target) if worker.config.portable else worker.target
    disk = Disk()
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
        needed = None if target.portable else _needs(importing, report, worker, bool(there))
        for name, content in bundle(target).of(needed, disk.list(at)).items():
            if disk.read(at / name) != content:
                files[at / name] = content
    return files


def _needs(
    importing: list[FileReport], report: Report, worker: Worker, is_there: bool
) -> Needs | None:
    """What the programs of some files need of the runtime; None for all of it.

    Of a module alone nobody knows how its program calls it: it gets all, or what is there.
    """
    if worker.config.runtime == "whole":
        return None
    results = {file.path.resolve(): file.result.source for file in report.files}
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
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and all(map(is_temporary, os.listdir(folder)))


def _as_given(folder: Path, file: Path) -> Path:
    """`folder` (absolute) spelled like `file` was given, so that reports show short paths."""
    for parent in file.parents:
        if parent.resolve() == folder:
            return parent
    return folder


# ---- writing -------------------------------------------------------------------------------------


def _save(
    report: Report,
    roots: Sequence[Path],
    write: bool,
    output: str | os.PathLike[str] | None,
    allow_dirty: bool,
) -> None:
    outputs = {path: (read_or_none(path), content) for path, content in report.companions.items()}
    # The runtime comes first: a program without it does not start.
    outputs |= {f.path: (f.result.original, f.result.source) for f in report.changed}
    changes = [Change(path, before, after) for path, (before, after) in outputs.items()]
    if output is not None:
        report.output, report.copied = Path(output), _folder(roots[0])
        report.errors += copying.copy(roots[0], report.output, changes)
    elif write and changes:
        tops = _tops(roots)
        by_root: dict[Path, list[Change]] = {}
        for change in changes:
            real = change.path.resolve()
            top = next(top for top in reversed(tops) if real.is_relative_to(top))
            by_root.setdefault(top, []).append(change)
        report.notes += in_place.write(by_root, allow_dirty)


def _tops(roots: Iterable[Path]) -> list[Path]:
    """What is locked for a run that writes: the projects that its paths are in."""
    real = [root.resolve() for root in roots]
    return sorted({project_root(path, real) for path in real})


@contextmanager
def _only_writer(report: Report, roots: Sequence[Path]) -> Iterator[None]:
    """Hold the projects of some paths, in the state in which the last run was complete."""
    tops = _tops(roots)
    with only_writer(tops):
        report.notes += in_place.recover(tops)
        yield


def undo(paths: Sequence[str | os.PathLike[str]]) -> TakenBack:
    """Take back what the last run has written in place in the projects of some paths.

    A file that has changed since is left as it is.

    Raises:
        UsageError: there is no such run, a file can not be written, another run writes there.
    """
    tops = _tops(_roots(paths, None))
    with only_writer(tops):
        return in_place.undo(tops)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _relative(path: Path, top: Path) -> Path:
    try:
        return path.relative_to(top)
    except ValueError:
        return path.resolve().relative_to(top.resolve())
