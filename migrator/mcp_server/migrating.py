"""What the tools do that only parse code."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.assess.assessment import assess
from migrator.config import Config
from migrator.diagnostics import Diagnostic, Outcome
from migrator.doctor.diagnosis import diagnose
from migrator.editor.single import single
from migrator.errors import UsageError
from migrator.files.user_folders import resolved
from migrator.pipeline.result import Result
from migrator.remaining.remaining import find_remaining
from migrator.remaining.show_remaining import to_dict
from migrator.report import View
from migrator.report import json as as_json
from migrator.report.diff import unified
from migrator.runs.run import migrate_paths
from migrator.runs.run_report import Report
from migrator.runs.run_targets import chosen_targets
from migrator.runs.worker import Worker
from migrator.targets import targets

from .roots import Roots
from .running import Tick


@dataclass(frozen=True)
class MigrationRequest:
    """What a migration is asked for; a line and a code mean one construct."""

    paths: list[str]
    target: str
    write: bool
    unsafe: bool
    line: int | None
    code: str | None


def assess_in(roots: Roots, paths: Sequence[str], tick: Tick) -> dict[str, Any]:
    found = roots.find_all(paths)
    assessed = assess(found, _config(roots, found), tick)
    every = (*assessed.programs, *assessed.elsewhere)
    roots.check(path for each in every for path in (*each.with_constructs, each.path) if path)
    return assessed.to_dict()


def remaining_in(
    roots: Roots, paths: Sequence[str], target: str, unsafe: bool, tick: Tick
) -> dict[str, Any]:
    found = roots.find_all(paths)
    config = replace(_config(roots, found), unsafe=unsafe, targets=(target,))
    left = find_remaining(found, target, config=config, progress=tick)
    roots.check(file.path for file in left.report.files)
    roots.check(each.path for each in left.remaining)
    inside = [
        replace(each, parts=[part.within(roots.holds) for part in each.parts])
        for each in left.remaining
    ]
    return to_dict(replace(left, remaining=inside))


def migrate_in(roots: Roots, asked: MigrationRequest, tick: Tick) -> dict[str, Any]:
    """The report of a run with its diff; of one construct, the diff alone."""
    found = roots.find_all(asked.paths)
    config = replace(_config(roots, found), unsafe=asked.unsafe, targets=(asked.target,))
    report = migrate_paths(found, asked.target, config=config, progress=tick)
    files = (file.path for file in report.files)
    roots.check([*files, *report.companions, *report.obsolete])
    top = roots.root_of(found[0])
    if asked.line is not None or asked.code is not None:
        if asked.write:
            raise UsageError("a construct's diff isn't written: apply it, or leave out `write`")
        return {"diff": _of_construct(found, asked, config, report, top)}
    code = replace(report, companions={})  # the runtime is no use to read; `companions` names it
    diff = b"".join(unified(code, top)).decode("utf-8", "replace")
    if asked.write:
        report = migrate_paths(found, asked.target, config=config, write=True, progress=tick)
    run: dict[str, Any] = json.loads(as_json.render(report, View(report.exit_code, asked.write)))
    return {"diff": diff, "written": asked.write, **run}


def _of_construct(
    found: Sequence[Path], asked: MigrationRequest, config: Config, report: Report, top: Path
) -> str:
    """What one construct changes, with what depends on it."""
    if len(found) != 1 or not found[0].is_file() or asked.line is None or asked.code is None:
        raise UsageError("a construct is one file, a `line` and a `code`")
    path = found[0]
    file = next(file for file in report.files if resolved(file.path) == path)
    wanted = [d for d in file.result.diagnostics if _is_meant(d, asked)]
    if not wanted:
        raise UsageError(f"{path}:{asked.line}: nothing with {asked.code} is rewritten there")
    wanted_targets = chosen_targets(asked.target)
    project = Worker([path], wanted_targets, config).project(path)
    part = single(path, file.result, wanted[0], wanted_targets, config.options, project)
    return _diff(path.relative_to(top).as_posix(), part)


def _is_meant(d: Diagnostic, asked: MigrationRequest) -> bool:
    return (d.range.line, d.code, d.outcome) == (asked.line, asked.code, Outcome.REWRITTEN)


def _diff(name: str, part: Result) -> str:
    before, after = (
        text.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        for text in (part.original, part.source)
    )
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))


def diagnose_here() -> dict[str, Any]:
    return diagnose([*targets().values()]).to_dict()


def _config(roots: Roots, paths: Sequence[Path]) -> Config:
    """One process: the server has threads, which a fork would not take along."""
    return replace(roots.config(paths), jobs=1)
