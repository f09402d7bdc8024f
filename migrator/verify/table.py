"""Prints the common parts of the results of apps and scripts."""

from rich.console import Console
from rich.text import Text

from . import app_table, script_table
from .number_formats import show_notes
from .script_result import ScriptResult
from .verify_result import VerifyResult


def show(result: VerifyResult | ScriptResult, console: Console) -> None:
    """Print the comparison, notes and the verdict."""
    if result.error is not None:
        # not wrapped, because it may contain commands to copy
        text = Text(f"{result.name} on {result.target}: {result.error}", style="red")
        console.print(text, soft_wrap=True)
        return
    if isinstance(result, VerifyResult):
        app_table.body(result, console)
        verdict = app_table.verdict(result)
    else:
        script_table.body(result, console)
        verdict = script_table.verdict(result)
    show_notes(result.notes, console)
    if result.log_tail:
        console.print(Text("The last lines of its output:", style="dim"))
        console.print(Text(result.log_tail), soft_wrap=True)
    if result.kept:
        console.print(Text(f"Kept in {result.kept}", style="dim"), soft_wrap=True)
    style = "bold green" if result.passed else "bold red"
    console.print(Text(verdict, style=style), soft_wrap=True)
