"""A worker: migrates files one by one, using its facts about their project."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.analysis.project.readers import Reader
from migrator.codes import INTERNAL, TOO_LARGE, UNREADABLE
from migrator.config import Config
from migrator.decision import Report
from migrator.diagnostics import START, Diagnostic, Outcome, Severity
from migrator.files import witness
from migrator.files.discover import Disk, is_excluded, project_root
from migrator.files.reading import read_file
from migrator.files.user_folders import resolved
from migrator.formats import file_kinds
from migrator.formats.embedded_text import SETTING
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS
from migrator.options import Options
from migrator.pipeline.analyse import may_hold_constructs
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.normalise import AsGpuCode, both
from migrator.pipeline.recursion_limit import room_for_depth
from migrator.pipeline.result import Result
from migrator.runs import all_or_nothing
from migrator.runs.run_report import FileReport
from migrator.targets import Delivered, Target, portable

MAX_BYTES = 4 * 2**20  # larger files are generated; parsing one would take minutes
MAX_NOTEBOOK = 2**28  # notebooks with images, which are not parsed


class Worker:
    """Migrates one file.

    `given` is what files hold, whatever is on the disk; `reader` knows the other files in place of
    the disk; `earlier` is what an earlier run knew.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        targets: Sequence[Target],
        config: Config,
        given: Mapping[Path, bytes] | None = None,
        reader: Reader | None = None,
        earlier: ProjectCache | None = None,
    ) -> None:
        self.roots = [resolved(root) for root in roots if root.exists()]
        self.targets, self.config = targets, config
        self.target = targets[0]  # the files whose programs the project's facts are about
        self.given = given or {}
        self.disk = AsGpuCode(reader or Disk(self.given), self.target)
        self.cache = ProjectCache(self.disk, DEVICE_CONSTRUCTS, earlier)
        self.held: Mapping[Path, Report] = {}  # files that stay with their programs
        self.delivered: Mapping[Path, Delivered] = {}  # the runtime, by the top of a project
        self._real: dict[Path, Path] = {}  # files without links
        self._tops: dict[tuple[Path, ...], dict[Path, Path]] = {}  # of projects, by folder

    def fresh(self, earlier: ProjectCache | None = None) -> Self:
        """A worker without facts about the project, except for those of `earlier` contents."""
        return type(self)(self.roots, self.targets, self.config, self.given, earlier=earlier)

    def project(self, path: Path, roots: Sequence[Path] = ()) -> ProjectFacts:
        """The facts of a file of the project that `roots` belong to (default: the worker's)."""
        if path not in self._real:
            self._real[path] = resolved(path)
        real = self._real[path]
        tops = self._tops.setdefault(tuple(roots), {})
        if real.parent not in tops:
            given = [resolved(root) for root in roots] or self.roots
            tops[real.parent] = project_root(real, given)
        return ProjectFacts(real, tops[real.parent], self.disk, self.cache, self.held.get(real))

    def find_programs(self, files: Iterable[Path]) -> None:
        """Collect the common facts of a run's files: their imports, and their programs."""
        in_one_process = not all(target.api.launches for target in self.targets)
        for path in files:
            if path.suffix != ".py":
                continue
            with room_for_depth(), suppress(Exception):  # errors are reported later
                project = self.project(path)
                content = project.cache.file(project.path).content
                if len(content) < MAX_BYTES and self.may_concern(content):
                    project.find_program(in_one_process=in_one_process)

    def may_concern(self, content: bytes) -> bool:
        """A cheap test: False for a file without any word that rules handle."""
        options = self.config.options
        return any(may_hold_constructs(content, target, options) for target in self.targets)

    def keep_programs(self, results: Mapping[Path, Result]) -> None:
        """Keep the files whose programs stay, judging by the results of some files alone."""
        target = portable(self.target) if self.config.portable else self.target
        self.held = all_or_nothing.kept_whole(
            results, self.project, target, self.config.options, self._is_excluded
        )

    def _is_excluded(self, path: Path) -> bool:
        return is_excluded(path, self.config.home, self.config.excluded)

    def __call__(self, path: Path) -> FileReport:
        try:
            source = self.given.get(resolved(path)) if self.given else None
            size = path.stat().st_size if source is None else len(source)
            if size > MAX_BYTES:
                witness.looked_at(path)
            if file_kinds.line_kind(path) == SETTING and size > MAX_BYTES:
                return FileReport(path, Result(b"", b""))  # data
            if size > (MAX_NOTEBOOK if file_kinds.is_notebook(path) else MAX_BYTES):
                message = f"{size / 2**20:.0f} MiB is too large for source; not processed"
                return failed(path, TOO_LARGE, message)
            if source is None:
                source = read_file(path)
            project = self.project(path)
            return migrated(path, source, self._targets(project.root), self.config.options, project)
        except OSError as error:
            return failed(path, UNREADABLE, f"cannot be read: {error.strerror or error}")
        except Exception as error:  # an error in one file must not stop the others
            message = f"internal error: {type(error).__name__}: {error}"
            return failed(path, INTERNAL, message, traceback.format_exc())

    def _targets(self, root: Path) -> Sequence[Target]:
        if root not in self.delivered:
            return self.targets
        return [replace(target, delivered=self.delivered[root]) for target in self.targets]


def migrated(
    path: Path,
    content: bytes,
    targets: Sequence[Target],
    options: Options,
    project: ProjectFacts | None = None,
) -> FileReport:
    """One file migrated for each framework's target, and the effect of --unsafe."""
    result = migrate_for_all(path, content, targets, options, project)
    if not any(d.outcome is not Outcome.REWRITTEN and d.safety for d in result.diagnostics):
        return FileReport(path, result)
    more = migrate_for_all(path, content, targets, replace(options, unsafe=True), project)
    return FileReport(path, result, _rewritten(more) - _rewritten(result))


def migrate_for_all(
    path: Path,
    content: bytes,
    targets: Sequence[Target],
    options: Options,
    project: ProjectFacts | None = None,
) -> Result:
    """Migrate one file for each framework's target, one after the other."""
    result = migrate_file(path, content, targets[0], options, project)
    for target in targets[1:]:
        more = migrate_file(path, result.source, target, options, project)
        if more.diagnostics and not result.failed:
            result = both(result, more)
    return result


def _rewritten(result: Result) -> Counter[str]:
    return Counter(d.code for d in result.diagnostics if d.outcome is Outcome.REWRITTEN)


def failed(path: Path, code: str, message: str, trace: str = "") -> FileReport:
    diagnostic = Diagnostic(START, code, Severity.ERROR, message, trace=trace)
    return FileReport(path, Result(b"", b"", (diagnostic,)))
