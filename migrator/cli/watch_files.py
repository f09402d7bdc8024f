"""``--watch``: migrates again what changes, until Ctrl-C."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import click

from migrator.cli.migration_arguments import MigrationArguments
from migrator.cli.output import show_diff
from migrator.diagnostics import Outcome
from migrator.errors import UsageError, installed_by
from migrator.files.reading import read_or_none
from migrator.files.user_folders import resolved
from migrator.report.statistics import count_noun, of_file
from migrator.report.terminal import printable
from migrator.runs.run_report import FileReport, Report

_WAIT = 200  # milliseconds


def check() -> None:
    """Raise UsageError where the library for it is missing."""
    if find_spec("watchfiles") is None:
        raise UsageError(f"--watch needs watchfiles: {installed_by('watch')}")


def watch(
    asked: MigrationArguments,
    first: Callable[[], int],
    migrate: Callable[[MigrationArguments], Report],
) -> int:
    """Migrate all, and then what changes, as `asked` says it; the exit code of the `first` run.

    Of each file that has changed, a line is printed.
    """
    paths, verb = asked.paths, "rewritten" if asked.writes else "to rewrite"
    written: dict[Path, bytes] = {}
    code: int | None = None
    try:
        for changed in _changes(paths):
            if code is None:  # from now on, no change is missed
                code = first()
                click.echo(f"watching {printable(' '.join(paths))}; Ctrl-C ends it", err=True)
                continue
            wanted = [path for path in changed if read_or_none(path) != written.get(path)]
            if not wanted:
                continue  # what this has written itself
            try:
                report = migrate(replace(asked, paths=tuple(map(str, wanted)), hook=True))
            except UsageError as error:
                click.echo(f"{_now()}  error: {printable(error)}", err=True)
                continue
            if asked.writes:
                written |= {file.path: file.result.source for file in report.changed}
            for line in (*(_line(file, verb) for file in report.files), *report.errors):
                click.echo(f"{_now()}  {printable(line)}", err=asked.diff)
            if asked.diff:
                show_diff(report, asked)
    except KeyboardInterrupt:
        click.echo(err=True)
    return code or 0


def _changes(paths: Sequence[str]) -> Iterator[list[Path]]:
    """Files that are new or have changed, as paths from here; none now and then.

    The folder of a file is watched, since editors replace files.
    """
    from watchfiles import Change
    from watchfiles import watch as look

    tops = [resolved(Path(path)) for path in paths]
    folders = {top if top.is_dir() else top.parent for top in tops}
    for changes in look(*folders, rust_timeout=_WAIT, yield_on_timeout=True):
        found = {Path(name) for change, name in changes if change is not Change.deleted}
        yield sorted(
            Path(os.path.relpath(path))
            for path in found
            if path.is_file() and any(path.is_relative_to(top) for top in tops)
        )


def _line(file: FileReport, verb: str) -> str:
    """What became of a file, on one line."""
    if file.result.failed:
        return f"{file.path}: {file.result.diagnostics[0].message}"
    counts = of_file(file).outcomes
    rewritten, left = counts[Outcome.REWRITTEN], counts[Outcome.REPORTED]
    said = [
        f"{count_noun(rewritten, 'construct')} {verb}" if rewritten else "",
        f"{left} reported" if left else "",
    ]
    return f"{file.path}: {', '.join(filter(None, said)) or 'nothing to do'}"


def _now() -> str:
    return time.strftime("%H:%M:%S")
