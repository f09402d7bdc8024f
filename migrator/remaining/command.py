"""``tpu-migrate remaining``: what is left to change by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from migrator.cli.looking import configuration, of_paths
from migrator.cli.progress import Progress
from migrator.report.terminal import console
from migrator.targets import DEFAULT
from migrator.targets.target_argument import TargetName


@click.command("remaining", short_help="List what is left to change by hand, with examples.")
@click.option(
    "--target",
    multiple=True,
    type=TargetName(),
    help="What the code is to run on; once per framework. Default: the one that "
    f"[tool.tpu-migrate] names, otherwise {DEFAULT}.",
)
@click.option("--unsafe", is_flag=True, help="What is left after the edits of --unsafe.")
@click.option("--portable", is_flag=True, help="What is left with --portable.")
@of_paths("Text for people, or JSON.")
def remaining_command(
    paths: tuple[str, ...],
    target: tuple[str, ...],
    exclude: tuple[str, ...],
    unsafe: bool,
    portable: bool,
    isolated: bool,
    form: str,
) -> None:
    """List each construct at PATH... that is left to change by hand.

    With its place, the programs that reach it, why it is left, what to write instead where an
    example is known, and the command that checks the change. Nothing is written. Exit code 0:
    nothing is left; 1: something is; 2: wrong usage, or a file could not be read.
    """
    from .remaining import find_remaining
    from .show_remaining import show, to_dict

    config = configuration(paths, isolated)
    config = config.with_overrides(target=target, exclude=exclude, unsafe=unsafe, portable=portable)
    with Progress(silent=False) as progress:
        left = find_remaining(paths, config.targets or DEFAULT, config=config, progress=progress)
    if form == "json":
        from migrator.report import as_json

        click.echo(as_json(to_dict(left)))
    else:
        show(left, console(), [*map(Path, paths)])
    sys.exit(2 if left.errors else int(bool(left.remaining)))
