"""``tpu-migrate rules`` and ``tpu-migrate explain``."""

from __future__ import annotations

import json
import re
import sys

import click

from migrator.cli.completion_values import codes
from migrator.codes import current, suggested_codes
from migrator.errors import UsageError
from migrator.report.terminal import color_option, console


@click.command("rules", short_help="List all rules, or test their examples.")
@click.option(
    "--test",
    "tested",
    metavar="PACKAGE",
    help="Only run the examples of an installed package's rules, or of a code, on every target.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["console", "json"]),
    default="console",
    help="A table for people (default), or JSON.",
)
@color_option
def rules_command(tested: str | None, form: str) -> None:
    """List all rules, or test the examples of those that a package brings."""
    if tested is not None:
        from migrator.report.example_failures import show_examples

        sys.exit(0 if show_examples(tested, console()) else 1)
    from migrator.registry import registry

    rules = registry().rules.values()
    if form == "json":
        listed = [
            {
                "code": rule.code, "name": rule.name, "summary": rule.summary,
                "safety": str(rule.safety),
                "targets": list(rule.targets),
            }
            for rule in rules
        ]  # fmt: skip
        click.echo(json.dumps(listed, indent=2))
        return
    from rich.table import Table

    out, table = console(), Table(box=None, pad_edge=False)
    wide = out.width >= 100
    columns = (("code", "cyan"), ("name", "bold"), ("safety", ""), ("what it does", ""))
    for column, style in columns if wide else (columns[0], columns[3]):
        table.add_column(column, style=style, no_wrap=column != "what it does")
    for rule in rules:
        row = (rule.name, str(rule.safety), rule.summary)
        table.add_row(rule.code, *(row if wide else [f"[bold]{row[0]}[/] ({row[1]})\n{row[2]}"]))
    out.print(table)


_CODE = re.compile(r"[A-Z]{3}\d+")


@click.command("explain", short_help="Explain a code or a name, before and after.")
@click.argument("code", metavar="CODE|NAME", required=False, shell_complete=codes)
@color_option
def explain_command(code: str | None) -> None:
    """Explain a code: what it means, why, and before and after for each target.

    TRN lists the codes of a family, torch.cuda.Stream says what becomes of a name.
    """
    if code is None:
        raise UsageError("explain takes a code (CUD003), or a name (torch.cuda.Stream)")
    from migrator.report.explain import every_code, explain
    from migrator.report.explain_name import explain_name, is_name
    from migrator.report.terminal import say

    known, out = every_code(), console()
    (wanted,) = current([code.upper()])  # an older code's, today
    if entry := known.get(wanted):
        explain(entry, out)
    elif family := [entry for name, entry in known.items() if name.startswith(wanted)]:
        for entry in family:
            say(out, f"{entry.code}  {entry.name}: {entry.summary}", 8)
    elif is_name(code) and not _CODE.fullmatch(wanted):
        say(out, explain_name(code))
    else:
        raise UsageError(f"there is no code {code}{suggested_codes(code, known)}")
