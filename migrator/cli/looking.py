"""What the commands have in common that look at programs, and write nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from migrator.cli.completion_values import paths as offered_paths
from migrator.config import Config, common, load
from migrator.errors import UsageError
from migrator.report.terminal import color_option

_Command = Callable[..., Any]


def of_paths(printed: str) -> Callable[[_Command], _Command]:
    """PATH..., `--exclude`, `--isolated`, `--color`, and `--format terminal|json`, with its help.

    They arrive as `paths`, `exclude`, `isolated` and `form`.
    """
    options = (
        click.argument("paths", nargs=-1, metavar="PATH...", shell_complete=offered_paths),
        click.option("--exclude", multiple=True, metavar="PATTERN",
                     help="Files or folders to skip."),
        click.option("--isolated", is_flag=True, help="Read no configuration files."),
        click.option("--format", "form", type=click.Choice(["terminal", "json"]),
                     default="terminal", show_default=True, help=printed),
        color_option,
    )  # fmt: skip

    def decorated(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def configuration(paths: Sequence[str], isolated: bool) -> Config:
    """The configuration around the paths. Raises UsageError, also where none is given."""
    if not paths:
        raise UsageError("no PATH given (a file or a folder)")
    return Config() if isolated else load(common(paths))
