"""The pool: all files of a run, in as many processes as they are worth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from migrator.files import witness
from migrator.files.reading import read
from migrator.files.witness import Witness
from migrator.formats import kinds
from migrator.registry import registry
from migrator.runs.run_report import FileReport
from migrator.runs.worker import MAX_BYTES, Worker

_POOL_BYTES = 600_000  # below this, starting processes costs more than it saves


def migrate_all(
    files: Sequence[Path], worker: Worker, progress: Callable[[int, int], None] | None
) -> list[FileReport]:
    processors = os.cpu_count() or 1
    jobs = min(worker.config.jobs or processors, 4 * processors)
    pooled = jobs > 1 and hasattr(os, "fork") and _work(files, worker) > _POOL_BYTES
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
    worker.find_programs(files)
    context, noted = multiprocessing.get_context("fork"), witness.current()
    with ProcessPoolExecutor(jobs, context, _start, (worker,)) as pool:
        for result, seen in pool.map(_migrate, files, chunksize=8):
            results.append(result)
            if noted is not None and seen is not None:
                noted.join(seen)
            if progress:
                progress(len(results), len(files))
    return results


_worker: Worker | None = None  # of this process; what it knows of the project stays with it


def _start(worker: Worker) -> None:
    """Begin a process, which has the worker by being a copy of its parent."""
    global _worker
    _worker = worker
    _end_with_parent()


def _migrate(path: Path) -> tuple[FileReport, Witness | None]:
    assert _worker is not None
    noted = witness.current()  # a copy of the parent's
    result = _worker(path)
    return result, noted.drain() if noted is not None else None


def _end_with_parent() -> None:
    """Have a process notice that nobody waits for it any more."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _work(files: Iterable[Path], worker: Worker) -> int:
    """Bytes of the files that will have to be parsed, roughly; counting stops when it is enough."""
    total = 0
    for path in files:
        if kinds.kind(path) is not None:
            continue
        try:
            source = read(path, MAX_BYTES) if path.stat().st_size < MAX_BYTES else b""
        except OSError:
            continue
        if worker.may_concern(source):
            total += len(source)
            if total > _POOL_BYTES:
                break
    return total
