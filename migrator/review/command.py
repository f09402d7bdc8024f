"""``tpu-migrate review``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from migrator.config import load
from migrator.report.terminal import color_option, console, obeying_nothing
from migrator.targets.target_argument import TargetName


@click.command("review", short_help="Explain a change that migrates code.")
@click.argument("revisions", metavar="REV|REV1..REV2")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH...]")
@click.option(
    "--target",
    multiple=True,
    type=TargetName(),
    help="Once per framework; otherwise the one that the new code uses.",
)
@click.option("--unsafe", is_flag=True, help="Unsafe edits count, too.")
@click.option("--portable", is_flag=True, help="The migration was made with --portable.")
@click.option(
    "--format", "form", type=click.Choice(["console", "json", "markdown"]), default="console",
    show_default=True,
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Also show changes that the tool makes.")
@color_option
def review_command(
    revisions: str,
    paths: tuple[Path, ...],
    target: tuple[str, ...],
    unsafe: bool,
    portable: bool,
    form: str,
    verbose: bool,
) -> None:
    """Explain a change that migrates code: what the tool makes, and what it does not.

    The old text of each file of the change is migrated in memory, by the configuration of the
    current folder, and what comes out is compared with the new text. REV: from there to the working
    tree. Exit code 0: the tool makes all of it; 1: lines are by hand, differ or are missing; 2: an
    error.
    """
    from migrator.review.changes import review
    from migrator.review.show_review import show, shown

    here = Path.cwd()
    config = load(here).with_overrides(target=target, unsafe=unsafe, portable=portable)
    found = review(here, revisions, paths, config)
    if form == "console":
        show(found, console(), verbose=verbose)
    else:
        with obeying_nothing() if form == "markdown" else nullcontext():
            click.echo(shown(found, form).encode("utf-8", "replace"))
    raise SystemExit(found.exit_code)
