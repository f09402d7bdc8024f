"""How far each target gets with the programs of a project: each is tried, nothing is written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.analysis.import_verdicts import ImportedModule, imports_of, unknown
from migrator.config import Config
from migrator.diagnostics import Effort, Severity
from migrator.errors import UsageError
from migrator.files.user_folders import resolved
from migrator.frameworks import find_framework
from migrator.pipeline.result import Result
from migrator.report.statistics import Work, count_noun, of_file, of_files
from migrator.runs.cross_file import is_code
from migrator.runs.run import migrate_paths
from migrator.runs.run_report import FileReport
from migrator.runs.started_programs import started_programs
from migrator.runs.worker import Worker
from migrator.targets import DEFAULT, targets

Paths = Sequence[str | os.PathLike[str]]
Tick = Callable[[int, int], None]
_Runs = Mapping[str, Mapping[Path, FileReport]]  # by target, the files of a run
_EFFORTS = list(Effort)


@dataclass(frozen=True)
class Standing:
    """How far one target gets with some files."""

    target: str
    work: Work
    code: Work  # the part of it that is code: a list of requirements decides nothing
    advice: int  # how often it runs in a way that the target has something to say about
    lines: int = 0  # that the migration takes out or puts in
    needs_runtime: bool = False  # which then is in the repository

    @property
    def keeps_gpus(self) -> bool:
        """Whether the migrated code still runs on GPUs."""
        return targets()[self.target].portable

    @property
    def weighs(self) -> str:
        """What the target does to a repository, in words."""
        adds = ", adds the runtime" * self.needs_runtime
        gpus = "still runs on GPUs" if self.keeps_gpus else "no longer runs on GPUs"
        slow = f", {count_noun(self.advice, 'place')} may be slow" if self.advice else ""
        good_for = targets()[self.target].good_for
        what_for = f"; for {good_for}" if good_for else ""
        return f"changes {count_noun(self.lines, 'line')}{adds}, {gpus}{slow}{what_for}"

    @property
    def merit(self) -> tuple[float, int, int]:
        """The least is the best: by what is left, then by what it takes, then by how it runs."""
        effort = _EFFORTS.index(self.code.effort) + 1 if self.code.effort else 0
        return -round(self.code.automatic), effort, self.advice

    @property
    def rank(self) -> tuple[tuple[float, int, int], bool, str]:
        return self.merit, self.target != DEFAULT, self.target


@dataclass(frozen=True)
class Assessment:
    """What became of a program on each target: the one to take is first."""

    path: Path | None  # that is started; None for what no program reaches, and for all of a run
    files: int
    with_constructs: Sequence[Path]  # those with most to change first
    standings: Sequence[Standing]

    @property
    def best(self) -> Standing:
        return self.standings[0]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "program": str(self.path) if self.path else None,
            "files": self.files,
            "take": self.equal,
            "why": self.why,
            "targets": {
                each.target: {
                    "automatic": round(each.work.automatic, 1),
                    "effort": each.work.effort and str(each.work.effort),
                    "left": dict(each.work.codes.most_common()),
                    "advice": each.advice,
                    "lines": each.lines,
                    "needs_runtime": each.needs_runtime,
                    "keeps_gpus": each.keeps_gpus,
                }
                for each in self.standings
            },
        }

    @property
    def equal(self) -> list[str]:
        """The targets that are as good as the best."""
        return [each.target for each in self.standings if each.merit == self.best.merit]

    @property
    def why(self) -> str:
        """Why the first target is the one to take, in one line."""
        best, *others = self.standings
        if not best.work.outcomes:
            return f"{best.target}: no GPU code"
        done = f"{best.target}: {best.code.automatic:.0f}% of its GPU code is done automatically"
        if not others:
            return done
        other = others[0]
        against = f"{other.code.automatic:.0f}% on {other.target}"
        if best.merit[0] != other.merit[0]:
            return f"{done}, against {against}"
        if best.merit[1] != other.merit[1]:
            less, more = (s.code.effort or "nothing" for s in (best, other))
            return f"{done}, as on {other.target}; the rest takes {more} there, {less} here"
        if best.merit[2] != other.merit[2]:
            return (
                f"{done}, as on {other.target}, where more places may be slow ({other.advice} "
                f"notes, {best.advice} here)"
            )
        others_as_good = " and ".join(name for name in self.equal if name != best.target)
        return f"{done}, as on {others_as_good}: nothing in the code favours one of them"

    @property
    def compared(self) -> list[str]:
        """What the targets that get furthest do to the code, a line for each."""
        if not self.best.work.outcomes:
            return []
        furthest = [each for each in self.standings if each.merit[:2] == self.best.merit[:2]]
        return [f"{each.target}: {each.weighs}" for each in furthest] if furthest[1:] else []


@dataclass(frozen=True)
class Assessed:
    """The programs of a run, what no program reaches, and the run as a whole, by framework."""

    programs: Sequence[Assessment]
    elsewhere: Sequence[Assessment]
    whole: Sequence[Assessment]
    untried: Sequence[str]  # what the programs import, and nobody knows whether it runs

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "programs": [each.to_dict() for each in self.programs],
            "reached_by_no_program": [each.to_dict() for each in self.elsewhere],
            "whole": [each.to_dict() for each in self.whole],
            "not_known_to_run": list(self.untried),
        }


def assess(paths: Paths, config: Config, progress: Tick | None = None) -> Assessed:
    """Try every target on files and folders.

    Raises:
        UsageError: a path that does not exist, options that no target takes.
    """
    programs: list[Assessment] = []
    elsewhere: list[Assessment] = []
    whole: list[Assessment] = []
    imports: dict[ImportedModule, list[Path]] = {}
    worker = Worker([Path(path) for path in paths], [targets()[DEFAULT]], config)
    for runs in _runs(paths, config, progress):
        name, files = next(iter(runs.items()))
        own = Worker([Path(path) for path in paths], [targets()[name]], config)
        started = started_programs(files, own)
        reached = {path for reached in started.values() for path in reached}
        imports |= imports_of(worker.project(path) for path in (reached or files) if is_code(path))
        programs += [_assessment(path, reached, runs) for path, reached in started.items()]
        elsewhere.append(_assessment(None, [path for path in files if path not in reached], runs))
        whole.append(_assessment(None, list(files), runs))
    found = _with_constructs(programs), _with_constructs(elsewhere)
    return Assessed(*found, whole, unknown(imports) if any(found) else [])


def _with_constructs(found: Sequence[Assessment]) -> list[Assessment]:
    return [each for each in found if each.best.work.outcomes]


def choose(paths: Paths, config: Config, progress: Tick | None = None) -> list[Assessment]:
    """The targets for all that is at some paths, for each framework of it. Raises as `assess`."""
    runs = _runs(paths, config, progress)
    return [_assessment(None, list(next(iter(each.values()))), each) for each in runs]


def _runs(paths: Paths, config: Config, progress: Tick | None) -> list[_Runs]:
    """A run with each target that takes the options, for each framework that files import."""
    groups: dict[str, dict[str, Mapping[Path, FileReport]]] = {}
    refused: UsageError | None = None
    for name, target in targets().items():
        try:
            report = migrate_paths(
                paths, name, config=replace(config, targets=(name,)), progress=progress
            )
        except UsageError as error:
            refused = error
            continue
        files = {resolved(file.path): file for file in report.files}
        groups.setdefault(target.framework, {})[name] = files
    if not groups and refused is not None:
        raise refused
    imported = [runs for framework, runs in groups.items() if _is_imported(framework, runs)]
    return [*(imported or list(groups.values())[:1])]


def _is_imported(framework: str, runs: _Runs) -> bool:
    files = next(iter(runs.values())).values()
    return any(find_framework(framework).is_imported_in(file.result.original) for file in files)


def _changed_lines(result: Result) -> int:
    """How many lines only the original has, and only the result; a line that moves is none."""
    if not result.changed:
        return 0
    before, after = (Counter(text.splitlines()) for text in (result.original, result.source))
    return (before - after).total() + (after - before).total()


def _assessment(path: Path | None, files: Sequence[Path], runs: _Runs) -> Assessment:
    standings = []
    for target, reports in runs.items():
        own = [reports[file] for file in files if file in reports]
        said = [diagnostic for file in own for diagnostic in file.result.diagnostics]
        advice = sum(diagnostic.severity is Severity.ADVICE for diagnostic in said)
        code = of_files([file for file in own if is_code(file.path)])
        lines = sum(_changed_lines(file.result) for file in own)
        runtime = any(file.result.companions for file in own)
        standings.append(Standing(target, of_files(own), code, advice, lines, runtime))
    standings.sort(key=lambda standing: standing.rank)
    first, best = next(iter(runs.values())), runs[standings[0].target]
    work = {first[file].path: of_file(best[file]) for file in files if file in best}
    found = sorted(file for file in work if work[file].outcomes)
    found.sort(key=lambda file: work[file].reported, reverse=True)
    return Assessment(path and first[path].path, len(files), found, standings)
