"""Each construct that is left, with its programs, and what to write instead."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.by_hand import Cure, cure_for
from migrator.config import Config
from migrator.diagnostics import Diagnostic, Effort, Range, lines_of, shortened
from migrator.files.user_folders import resolved
from migrator.pipeline.recursion_limit import room_for_depth
from migrator.registry import registry
from migrator.report.staying import SharedObstacle, staying
from migrator.runs.run import migrate_paths
from migrator.runs.run_report import FileReport, Report
from migrator.runs.run_targets import chosen_targets
from migrator.runs.started_programs import started_programs
from migrator.runs.worker import Worker
from migrator.targets import DEFAULT, Target

from .kernels.kernel import KernelPart
from .kernels.parts import parts
from .kernels.search import Search

_OF_KERNELS = ("triton", "numba", "cupy", "torch.utils.cpp_extension")
_INSTALLER = "setup.py"  # is started, but computes nothing


@dataclass(frozen=True)
class Remaining:
    """A construct that is left to change by hand, or a line that keeps a program from changing."""

    path: Path
    range: Range
    code: str
    name: str  # what the construct was found by: torch_cluster, torch.cuda.Stream
    construct: str  # its source text, shortened
    reason: str
    effort: Effort | None
    unsafe: str  # what may change if --unsafe rewrites it; "": that doesn't, either
    programs: Sequence[Path]  # that reach it
    keeps: Sequence[str]  # the places of what stays because of it
    cure: Cure | None  # what to write instead, with an example
    target: str
    parts: Sequence[
        KernelPart
    ] = ()  # what its file's kernels become: at the first that speaks of them

    @property
    def place(self) -> str:
        return f"{self.path}:{self.range}"

    @property
    def check(self) -> str:
        """The command that judges a change here."""
        program = shlex.quote(str(self.programs[0])) if self.programs else "PROGRAM.py"
        return f"tpu-migrate verify {program} --target {self.target}"


@dataclass(frozen=True)
class Left:
    """What is left of a run, and the files that could not be read."""

    remaining: Sequence[Remaining]
    errors: Sequence[str]
    report: Report


def find_remaining(
    paths: Sequence[str | os.PathLike[str]],
    target: str | Sequence[str] = DEFAULT,
    *,
    config: Config | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Left:
    """Find what is left to change by hand once the rules have done their part. Nothing is written.

    Args:
        paths: files, with those of the project that they import; or folders.
        target: the name of one, or of one for each framework.
        progress: called with (files done, files in all).

    Raises:
        UsageError: a path that does not exist, an option that the target lacks.
    """
    config = config or Config()
    report = migrate_paths(paths, target, config=config, progress=progress)
    wanted = chosen_targets(target)
    files = {resolved(file.path): file for file in report.files}
    worker = Worker([Path(path) for path in paths], wanted, config)
    programs: dict[Path, list[Path]] = {}
    for started, reached in started_programs(files, worker).items():
        for file in reached if started.name != _INSTALLER else ():
            programs.setdefault(file, []).append(files[started].path)
    find = _RemainingFinder(wanted, programs, files)
    kept, others = staying(report)
    found = [find.construct(path, diagnostic) for path, diagnostic in others]
    found += [find.obstacle(each) for program in kept for each in program.obstacles]
    errors = [*report.errors, *(f"{path}: {d.message}" for path, d in report.failures)]
    found.sort(key=lambda each: (each.path, each.range, each.code))
    return Left([*_with_parts(found, worker)], errors, report)


def _with_parts(found: Sequence[Remaining], worker: Worker) -> Iterator[Remaining]:
    """With the kernels of each file, at the first construct there that speaks of kernels."""
    searches: dict[Path, Search] = {}
    done: set[Path] = set()
    for each in found:
        if each.path in done or not each.name.startswith(_OF_KERNELS):
            yield each
            continue
        done.add(each.path)
        with room_for_depth():
            project = worker.project(each.path)
            search = searches.setdefault(project.root, Search(project))
            yield replace(each, parts=parts(project, search))


class _RemainingFinder:
    """Makes a `Remaining` of what a run reports."""

    def __init__(
        self,
        targets: Sequence[Target],
        programs: Mapping[Path, list[Path]],
        files: Mapping[Path, FileReport],
    ) -> None:
        self.targets, self.programs, self.files = targets, programs, files

    def construct(self, path: Path, d: Diagnostic) -> Remaining:
        target = self._target(d.code)
        unsafe = d.why if d.safety is not None else ""
        return Remaining(
            path, d.range, d.code, d.name, d.construct, d.message, d.effort, unsafe,
            self._programs(path), (), cure_for(d.code, d.name, target), target.name,
        )  # fmt: skip

    def obstacle(self, found: SharedObstacle) -> Remaining:
        """A line that keeps a program as it is, with the constructs that stay for it."""
        code = registry().for_launched_code.code
        there = (d for path, d in found.kept if path == found.path and d.range.line == found.line)
        own = next(there, None)
        target = self._target(code)
        name, construct = (own.name, own.construct) if own else ("", self._line(found))
        return Remaining(
            found.path, own.range if own else Range(found.line, 1, found.line, 1), code, name,
            construct, found.reason, own.effort if own else Effort.HOURS, "",
            self._programs(found.path), [f"{p}:{d.range}  {d.construct}" for p, d in found.kept],
            cure_for(code, name, target), target.name,
        )  # fmt: skip

    def _programs(self, path: Path) -> Sequence[Path]:
        return self.programs.get(resolved(path), ())

    def _target(self, code: str) -> Target:
        """Of several targets, the one whose framework a rule is about."""
        rule = registry().rules.get(code)
        of_framework = (t for t in self.targets if rule and t.framework == rule.framework)
        return next(of_framework, self.targets[0])

    def _line(self, found: SharedObstacle) -> str:
        """The source text of an obstacle, if its file is one of the run."""
        file = self.files.get(resolved(found.path))
        lines = lines_of(file.result.original.decode("utf-8", "replace")) if file else []
        return shortened(lines[found.line - 1]) if found.line <= len(lines) else ""
