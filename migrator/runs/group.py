"""One group of files, from reading to the results; the same code in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from migrator.config import Config
from migrator.errors import UsageError
from migrator.files import witness
from migrator.files.user_folders import resolved
from migrator.files.witness import Witness
from migrator.runs.run_report import FileReport
from migrator.runs.runtime_copies import Uses, runtime_uses
from migrator.runs.worker import Worker
from migrator.targets import find_target


@dataclass(frozen=True)
class MigratedFile:
    """The results of a group."""

    files: Sequence[FileReport]
    uses: Uses  # of the runtime
    seen: Witness | None = None  # everything it was made from, if that is recorded


def own_version() -> str:
    from importlib.metadata import version  # slow to import

    return version("tpu-migrate")


@dataclass(frozen=True)
class WorkerPlan:
    """The data from which a worker on another machine is made."""

    roots: Sequence[Path]
    targets: Sequence[str]
    config: Config
    version: str

    def worker(self) -> Worker:
        """The worker. Raises UsageError if another version of this tool is installed there."""
        if self.version != (own := own_version()):
            raise UsageError(f"a worker has tpu-migrate {own}, not {self.version}")
        return Worker(self.roots, list(map(find_target, self.targets)), self.config)


def migrate_elsewhere(files: Sequence[Path], plan: WorkerPlan) -> MigratedFile:
    """Migrate groups in a process that only has this plan."""
    return migrate_group(files, plan.worker())


def migrate_group(
    files: Sequence[Path], worker: Worker, tick: Callable[[], object] | None = None
) -> MigratedFile:
    """Migrate all files of one or more groups; `tick` is called after each."""
    results = []
    for path in files:
        results.append(worker(path))
        if tick is not None:
            tick()
    return finish_group(results, worker)


def finish_group(results: Sequence[FileReport], worker: Worker) -> MigratedFile:
    """Combine the results of the group's files.

    A program is never migrated in part: if one of its files stays, all do.
    """
    files = list(results)
    worker.keep_programs({file.path: file.result for file in files})
    for number, file in enumerate(files):
        if file.result.migrated and resolved(file.path) in worker.held:
            files[number] = worker(file.path)
    return MigratedFile(files, runtime_uses(files, worker))


def migrate_groups(
    groups: Sequence[Sequence[Path]], worker: Worker, tick: Callable[[], object] | None = None
) -> Iterator[MigratedFile]:
    """Migrate groups; one by one, each with what it depends on, if that is recorded."""
    if witness.current() is None:
        yield migrate_group([path for files in groups for path in files], worker, tick)
        return
    for files in groups:
        worker = worker.fresh(worker.cache)  # reads everything again
        yield recorded(partial(migrate_group, files, worker, tick))


def recorded(migrate: Callable[[], MigratedFile]) -> MigratedFile:
    """A result with everything it depends on, if that is recorded."""
    if witness.current() is None:
        return migrate()
    with witness.watching() as seen:
        migrated = migrate()
    return replace(migrated, seen=seen.without_what_follows())
