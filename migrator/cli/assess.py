"""``tpu-migrate assess``: a table of programs and targets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.cli.looking import configuration, of_paths
from migrator.cli.progress import Progress
from migrator.diagnostics import first_of
from migrator.report.statistics import UNTRIED
from migrator.report.terminal import console, line, printable, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from migrator.assess.assessment import Assessment
    from migrator.report.statistics import Work

_BESIDE = "(other files)"
_NAMED = 5  # files
_IMPORTS = 20


@click.command("assess", short_help="Compare the targets, program by program.")
@of_paths("A table for people, or JSON.")
def assess_command(
    paths: tuple[str, ...], exclude: tuple[str, ...], isolated: bool, form: str
) -> None:
    """Say how far each target gets with each program at PATH..., and which to take."""
    from migrator.assess.assessment import assess

    config = configuration(paths, isolated)
    with Progress(silent=False) as progress:
        found = assess(paths, config.with_overrides(exclude=exclude), progress)
    if form == "json":
        from migrator.report import as_json

        click.echo(as_json(found.to_dict()))
        return
    out = console()
    if found.programs or found.elsewhere:
        _table(out, found.programs, found.elsewhere)
        out.print()
    if found.untried:
        said = f"{UNTRIED}: {first_of(found.untried, _IMPORTS)}"
        out.print(line((said, "dim")), soft_wrap=True)
    for whole in found.whole:
        say(out, line((whole.why, "bold")))
        for each in whole.compared:
            say(out, line(f"  {each}"))
    if found.programs or found.elsewhere:
        chosen = " ".join(f"--target {whole.best.target}" for whole in found.whole)
        open_to = "for example: " if any(whole.equal[1:] for whole in found.whole) else ""
        command = f"{open_to}tpu-migrate {shlex.join(paths)} {chosen} --diff"
        out.print(line(command), soft_wrap=True)


def _table(out: Console, programs: Sequence[Assessment], elsewhere: Sequence[Assessment]) -> None:
    from rich.table import Table
    from rich.text import Text

    names = sorted({s.target for each in (*programs, *elsewhere) for s in each.standings})
    table = Table(box=None, pad_edge=False)
    table.add_column("program", overflow="fold")
    table.add_column("files", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for title in ("take", "left to change there"):
        table.add_column(title, overflow="fold")
    for each in (*programs, *elsewhere):
        beside = each.path is None and bool(programs)
        done = {s.target: _done(s.work, beside) for s in each.standings}
        table.add_row(
            Text(_name(each.path, bool(programs))), str(each.files),
            *(done.get(name, "") for name in names), Text(_take(each), "green"),
            Text(_left(each)),
        )  # fmt: skip
    out.print(table)
    for each in elsewhere if programs else ():
        named = first_of([*map(printable, each.with_constructs)], _NAMED)
        say(out, line(f"{_BESIDE}, which no program imports: {named}"))


def _done(work: Work, beside: bool) -> str:
    """The share that is automatic; of a few lines beside the programs, what is left: a share of
    one requirement says nothing."""
    if not beside:
        return f"{work.automatic:.0f}%"
    return f"{work.reported:,} left" if work.reported else "100%"


def _take(assessment: Assessment) -> str:
    """The best target, or several that the code gives no reason to choose between."""
    equal = assessment.equal
    several = len(equal) > 1 and len(equal) == len(assessment.standings)
    return "any" if several else " or ".join(equal)


def _name(path: Path | None, beside: bool) -> str:
    if path is None:
        return _BESIDE if beside else "(no program: a library)"
    return printable(path)


def _left(assessment: Assessment) -> str:
    work = assessment.best.work
    codes = ", ".join(f"{code} ×{n}" if n > 1 else code for code, n in work.codes.most_common(4))
    more = ", …" if len(work.codes) > 4 else ""
    return f"{work.effort}: {codes}{more}" if work.effort is not None else ""
