"""The pool: migrates the groups of a run, in a suitable number of processes or by an executor."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from migrator.files import witness
from migrator.files.reading import read_file
from migrator.files.witness import Witness
from migrator.formats import file_kinds
from migrator.registry import registry
from migrator.runs.divide_files import Group, divide, work
from migrator.runs.group import (
    MigratedFile,
    WorkerPlan,
    finish_group,
    migrate_elsewhere,
    migrate_group,
    migrate_groups,
    own_version,
    recorded,
)
from migrator.runs.run_report import FileReport
from migrator.runs.worker import MAX_BYTES, Worker

_POOL_BYTES = 600_000  # below this, starting processes costs more than it saves
_MOST_AT_ONCE = 3_000_000  # bytes of groups that share a worker, and so its memory
# Modules that every process needs: imported once, before they start.
_FOR_ALL = (
    "libcst.native",
    "migrator.tree",
    "migrator.pipeline.rewrite",
    "migrator.pipeline.write",
)
_TASKS = 16  # per process, so that they all end at about the same time
Tick = Callable[[int, int], None]


def migrate_all(
    files: Sequence[Path],
    worker: Worker,
    progress: Tick | None = None,
    executor: Executor | None = None,
) -> MigratedFile:
    """Migrate the files of a run: in this process, in child processes, or by an executor."""
    count = _Count(len(files), progress)
    if executor is not None:
        batches = _batches(divide(files, worker), _MOST_AT_ONCE // 30)
        return _ordered(files, _elsewhere(batches, worker, executor, count))
    if _work(files, worker) <= _POOL_BYTES:
        return migrate_group(files, worker, count)
    groups = divide(files, worker)
    if witness.current() is None:
        return _ordered(files, _here(groups, worker, count))
    return _ordered(files, _unless_known(groups, worker, count))


def _unless_known(groups: Sequence[Group], worker: Worker, count: _Count) -> Iterator[MigratedFile]:
    """The results of groups: those of an earlier run as far as nothing has changed."""
    from migrator.runs.group_cache import KnownResults  # slow to import

    known = KnownResults(worker)
    left = []
    for group in groups:
        if (found := known.find(group.files)) is None:
            left.append(group)
        else:
            count(len(group.files))
            yield found
    for migrated in _here(left, worker, count):
        known.keep(migrated)
        yield migrated
    known.save()


def _here(groups: Sequence[Group], worker: Worker, count: _Count) -> Iterator[MigratedFile]:
    """Migrate groups on this machine, in as many processes as are worth it."""
    processors = os.cpu_count() or 1
    jobs = min(worker.config.jobs or processors, 4 * processors)
    total = sum(group.work for group in groups)
    if jobs == 1 or total <= _POOL_BYTES or not hasattr(os, "fork"):
        for batch in _batches(groups, _MOST_AT_ONCE):
            yield from migrate_groups(batch, worker.fresh(), count)
        return
    registry()
    for module in _FOR_ALL:
        import_module(module)
    share = total / jobs
    large = [group.files for group in groups if group.work > share]
    rest = [group for group in groups if group.work <= share]
    batches = _batches(rest, min(int(share / _TASKS), _MOST_AT_ONCE))
    if batches:
        yield from _in_processes(batches, worker, jobs, count)
    for group in large:
        yield recorded(partial(_one_in_processes, group, worker.fresh(), jobs, count))


class _Count:
    """Counts the finished files."""

    def __init__(self, total: int, progress: Tick | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def __call__(self, number: int = 1) -> None:
        self.done += number
        if self.progress is not None:
            self.progress(self.done, self.total)


def _batches(groups: Iterable[Group], most: int) -> list[list[Sequence[Path]]]:
    """Combine small groups, so that their surroundings are read once."""
    batches: list[list[Sequence[Path]]] = []
    left = 0
    for group in groups:
        if not batches or group.work > left:
            batches.append([])
            left = most
        batches[-1].append(group.files)
        left -= group.work
    return batches


def _ordered(files: Sequence[Path], parts: Iterable[MigratedFile]) -> MigratedFile:
    place = {path: number for number, path in enumerate(files)}
    found = sorted(parts, key=lambda part: place[part.files[0].path])  # in order
    by_path = {file.path: file for part in found for file in part.files}
    uses: dict[Path, Path] = {}
    every = (item for part in found for item in part.uses.items())
    for root, file in sorted(every, key=lambda item: place[item[1]]):
        uses.setdefault(root, file)
    return MigratedFile([by_path[path] for path in files], uses)


# ---- processes of our own ------------------------------------------------------------------------


def _in_processes(
    batches: Sequence[Sequence[Sequence[Path]]], worker: Worker, jobs: int, count: _Count
) -> Iterator[MigratedFile]:
    """Groups, each in one process, which forgets it before the next one."""
    with _processes(jobs, worker) as pool:
        for future in as_completed(pool.submit(_migrate_batch, batch) for batch in batches):
            for migrated in future.result():
                count(len(migrated.files))
                yield migrated


def _one_in_processes(
    files: Sequence[Path], worker: Worker, jobs: int, count: _Count
) -> MigratedFile:
    """One group that is most of a run: its files are divided, but common facts are computed
    once."""
    worker.find_programs(files)
    results = []
    with _processes(jobs, worker) as pool:
        for result, seen in pool.map(_migrate, files, chunksize=8):
            results.append(result)
            if seen is not None:
                witness.also_read(seen)
            count()
    return finish_group(results, worker)


def _processes(jobs: int, worker: Worker) -> Executor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(jobs, context, _start, (worker,))


_worker: Worker | None = None  # of this process


def _start(worker: Worker) -> None:
    """Start a process, which gets the worker because it is a copy of its parent."""
    global _worker
    _worker = worker
    gc.freeze()  # to collect what is shared with the parent would copy it
    _end_with_parent()


def _migrate(path: Path) -> tuple[FileReport, Witness | None]:
    assert _worker is not None
    noted = witness.current()  # a copy of the parent's
    result = _worker(path)
    return result, noted.drain() if noted is not None else None


def _migrate_batch(groups: Sequence[Sequence[Path]]) -> list[MigratedFile]:
    assert _worker is not None
    return list(migrate_groups(groups, _worker.fresh()))


def _end_with_parent() -> None:
    """Make a process end if its parent has ended."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# ---- an executor of another ----------------------------------------------------------------------


def _elsewhere(
    groups: Iterable[Sequence[Sequence[Path]]], worker: Worker, executor: Executor, count: _Count
) -> Iterator[MigratedFile]:
    """Groups on an executor's machines; paths are those of a shared file system."""
    witness.asked_others()
    names = [target.name for target in worker.targets]
    plan = WorkerPlan(worker.roots, names, worker.config, own_version())
    batches = [[path for files in batch for path in files] for batch in groups]
    given = {path.absolute(): path for batch in batches for path in batch}
    futures = [
        executor.submit(migrate_elsewhere, [path.absolute() for path in batch], plan)
        for batch in batches
    ]
    for future in as_completed(futures):
        found = future.result()
        files = [replace(file, path=given[file.path]) for file in found.files]
        uses = {root: given[file] for root, file in found.uses.items()}
        count(len(files))
        yield MigratedFile(files, uses)


def _work(files: Iterable[Path], worker: Worker) -> int:
    """The amount of work for some files; counting stops once it is enough."""
    total = 0
    for path in files:
        if file_kinds.line_kind(path) is not None:
            continue
        try:
            source = read_file(path, MAX_BYTES) if path.stat().st_size < MAX_BYTES else b""
        except OSError:
            continue
        total += work(source, worker)
        if total > _POOL_BYTES:
            break
    return total
