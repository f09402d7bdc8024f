"""What the default command prints, and writes as reports."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.cli.migration_arguments import MigrationArguments
from migrator.report import View, render, write
from migrator.report.terminal import console, obeying_nothing, printable

if TYPE_CHECKING:
    from migrator.runs.run_report import Report


def write_reports(
    report: Report, asked: MigrationArguments, view: View, *, err: bool = False
) -> bool:
    """Write what is asked for to files, and print it; False where the console is meant."""
    printed, files = asked.forms
    for file, name in files.items():
        write(file, render(name, report, view))
    if printed == "console":
        return False
    text = render(printed, report, view).encode("utf-8", "replace")
    with obeying_nothing(err=err) if printed == "markdown" else nullcontext():
        click.echo(text, err=err)
    return True


def says_nothing(report: Report, asked: MigrationArguments) -> bool:
    """Whether the console has nothing to tell: a hook should not wait for the import of rich."""
    return asked.quiet and not asked.statistics and not report.errors and not report.failures


def show(report: Report, asked: MigrationArguments) -> None:
    """The console output; with --diff, the diff alone goes to standard output.

    It has the files of the runtime only if they are asked for.
    """
    if says_nothing(report, asked) and not asked.diff:
        return
    if asked.diff:
        show_diff(report, asked)
    # of a few lines, each edit is told
    verbose = asked.verbose or (asked.check_only and asked.diff_base is not None)
    render_console(
        report, replace(asked, verbose=verbose), stderr=asked.diff,
        hidden=asked.diff and not asked.with_runtime,
    )  # fmt: skip


def show_diff(report: Report, asked: MigrationArguments) -> None:
    """The diff on standard output, in colours on a terminal."""
    if (out := console()).is_terminal:
        from migrator.report.console import show_diff as show

        show(report, out, companions=asked.with_runtime)
    else:
        print_diff(report if asked.with_runtime else replace(report, companions={}))


def print_diff(report: Report) -> None:
    from migrator.report.diff import unified

    with obeying_nothing():
        sys.stdout.buffer.write(b"".join(unified(report)))
        sys.stdout.flush()


def render_console(
    report: Report, asked: MigrationArguments, *, stderr: bool, hidden: bool = False
) -> None:
    """Say what became of the files; `hidden`: a runtime that the diff leaves out."""
    from migrator.report.console import render as render_report

    out = console(stderr=stderr)
    render_report(
        report, out, quiet=asked.quiet, verbose=asked.verbose,
        statistics=asked.statistics, written=not asked.looks, hidden=hidden,
    )  # fmt: skip
    if said := _next(report, asked):
        out.print(printable(said), markup=False, soft_wrap=True)


def _next(report: Report, asked: MigrationArguments) -> str:
    """The command that comes next; "" if there is none to name. Entry scripts have set-up."""
    by_a_person = not (asked.quiet or asked.hook or asked.is_standard_input)
    if not by_a_person or not report.changed or report.exit_code == 2:
        return ""
    if asked.writes:
        return f"take it back: tpu-migrate {shlex.join(asked.paths)} --undo"
    programs = [file.path for file in report.changed
                if any(d.is_edit and not d.outcome for d in file.result.diagnostics)]  # fmt: skip
    if not programs or "," in report.target:  # verify takes one target, and the original
        return ""
    first = shlex.quote(str(min(programs, key=_is_less_telling)))
    return f"compare the numbers: tpu-migrate verify {first} --target {report.target} --quick"


_TEST = re.compile(r"(?<![a-z])tests?(?![a-z])", re.IGNORECASE)
_STARTED = ("train", "main", "run")  # how programs are called that are started, likely ones first


def _is_less_telling(program: Path) -> tuple[bool, bool, bool, int, int, Path]:
    """Last of all what a user is least likely to start: notebooks, tests, other names, and what
    lies deeper; in one folder `train.py` comes before `main.py`, and that before `train_old.py`."""
    name = program.stem.lower()
    exact = [n for n, each in enumerate(_STARTED) if name == each]
    near = [n + len(_STARTED) for n, each in enumerate(_STARTED) if each in name]
    rank = min([*exact, *near], default=len(_STARTED) * 2)
    return (
        program.suffix != ".py", any(_TEST.search(part) for part in program.parts),
        rank == len(_STARTED) * 2, len(program.parts), rank, program,
    )  # fmt: skip
