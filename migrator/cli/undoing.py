"""``--undo``: takes back the last run in place."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.cli.migration_arguments import MigrationArguments
from migrator.report.terminal import printable

if TYPE_CHECKING:
    from migrator.files.journal import TakenBack


def take_back(asked: MigrationArguments) -> int:
    """Take back the last run, and say what became of its files; the exit code."""
    from migrator.report.statistics import count_noun
    from migrator.runs.run import undo

    asked.check_undo()
    done = undo(asked.paths, look=asked.check_only)
    said = [
        f"{'would ' * asked.check_only}{verb if asked.check_only else past} "
        f"{count_noun(len(files), 'file')}"
        for verb, past, files in (
            ("restore", "restored", done.restored), ("remove", "removed", done.removed)
        )
        if files
    ]  # fmt: skip
    said += [f"{printable(file)}: has changed since; left as it is" for file in done.left]
    if done.is_empty:
        said.append("nothing to undo: all files of the last run are as they were before it")
    said += _in_git(done) if not asked.check_only else []
    for line in said if not asked.quiet else ():
        click.echo(line)
    return 1 if asked.check_only and not done.is_empty and not asked.exit_zero else 0


def _in_git(done: TakenBack) -> list[str]:
    """What git still holds of a run that is undone, as after `git add vendor`."""
    from migrator.files.overwriting import held_otherwise

    here = Path.cwd().resolve()
    held = [
        os.path.relpath(file, here) if file.is_relative_to(here) else str(file)
        for file in held_otherwise([*done.restored, *done.removed])
    ]
    return [f"git still has what was taken back: git add {shlex.join(held)}"] if held else []
