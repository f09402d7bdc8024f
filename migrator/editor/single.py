"""One rewrite at a time, for an editor's quick fixes.

A rewrite may need others: a GradScaler goes with all its uses, and an import with its last use. So
one rewrite is made alone and the result is migrated. If that doesn't lead to the same text as
migrating the whole file, the differing parts are added to the rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.diagnostics import Diagnostic, Range
from migrator.files.discover import as_module
from migrator.options import Options
from migrator.pipeline.engine import migrate_file
from migrator.pipeline.result import Result
from migrator.registry import registry
from migrator.report.hunks import Hunk, hunks
from migrator.runs.worker import migrate_for_all
from migrator.targets import Target

_ATTEMPTS = 6


def single(
    path: Path,
    whole: Result,
    wanted: Diagnostic,
    targets: Sequence[Target],
    options: Options,
    project: ProjectFacts | None = None,
) -> Result:
    """What becomes of a file if only `wanted` of its diagnostics is rewritten.

    Args:
        whole: the file's migration with the same targets, options and project. Comments for what is
            left (`todo_comments`) are no part of it.

    Migrating the result gives what `whole` is; so do all rewrites, each made by itself.
    """
    rule = registry().rules.get(wanted.code)
    framework = rule.framework if rule is not None else ""
    target = next((t for t in targets if t.framework == framework), targets[0])
    chosen = {_key(wanted)}
    for _ in range(_ATTEMPTS):
        only = _only(frozenset(chosen))
        part = migrate_file(path, whole.original, target, replace(options, only=only), project)
        if part.failed or not part.changed:
            break
        there = project
        if project is not None:
            there = project.with_files({project.path: as_module(path, part.source)})
        rest = migrate_for_all(path, part.source, targets, options, there)
        if rest.source == whole.source:
            return part
        behind = hunks(path.suffix, Result(rest.source, whole.source))
        more = _made_where(hunks(path.suffix, whole), behind)
        if more <= chosen:
            break
        chosen |= more
    return whole


_Key = tuple[Range, str]


def _key(diagnostic: Diagnostic) -> _Key:
    return diagnostic.range, diagnostic.code


def _only(chosen: frozenset[_Key]) -> Callable[[Range, str], bool]:
    return lambda where, code: (where, code) in chosen


def _made_where(made: Iterable[Hunk], wanted: Iterable[Hunk]) -> set[_Key]:
    """The lines of the source after hunks whose new lines match those of others."""
    return {
        _key(d)
        for hunk in made
        for other in wanted
        if hunk.cell == other.cell
        and hunk.new_start <= other.new_end
        and other.new_start <= hunk.new_end
        for d in hunk.diagnostics
    }
