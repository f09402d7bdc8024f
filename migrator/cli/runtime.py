"""``tpu-migrate runtime``."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.config import common, load
from migrator.errors import UsageError
from migrator.report.terminal import color_option, printable
from migrator.targets.target_argument import TargetName

_PATHS = click.argument(
    "paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[FOLDER...]"
)


@click.group("runtime", short_help="Look at, and renew, the runtime in a project.")
def runtime_command() -> None:
    """The runtime that lies in a project, as a wheel in `vendor` or as the folder `tpu_runtime`."""


@runtime_command.command("check", short_help="Say which are old, or were changed.")
@_PATHS
@color_option
def check_command(paths: tuple[Path, ...]) -> None:
    """Say which runtimes are of another version than this tool's, and which were changed.

    Exit code 0: none; 1: some; 2: an error.
    """
    from migrator.runs.upkeep import InstalledRuntime, find_runtimes

    found = find_runtimes(paths or (Path(),))

    def said(each: InstalledRuntime) -> str:
        parts = [f"tpu-runtime {each.version or 'without a version'}, for {each.label}"]
        if each.changed:
            parts.append(f"changed: {', '.join(each.changed)}")
        if each.version != each.current:
            parts.append(f"this tpu-migrate has {each.current}")
        end = "as it was written" if each.is_right else "tpu-migrate runtime update renews it"
        return f"{printable(each.path)}: {'; '.join([*parts, end])}"

    for each in found:
        click.echo(said(each))
    if not found:
        click.echo("no runtime there: neither vendor/tpu_runtime-*.whl nor a folder tpu_runtime")
    raise SystemExit(0 if all(each.is_right for each in found) else 1)


@runtime_command.command("update", short_help="Renew those that are there.")
@_PATHS
@click.option("--allow-dirty", is_flag=True, help="Overwrite files that git does not hold.")
@color_option
def update_command(paths: tuple[Path, ...], allow_dirty: bool) -> None:
    """Write this tool's version of the runtimes that are there, and name it in requirements."""
    from migrator.runs.upkeep import renew

    folders = paths or (Path(),)
    report = renew(folders, load(common(folders)), allow_dirty)
    written = [*report.companions, *(file.path for file in report.changed)]
    for error in report.errors:
        click.echo(printable(error), err=True)
    for path in dict.fromkeys(_top(path) for path in written):
        click.echo(f"{printable(path)}: renewed")
    if not written:
        click.echo("all are as this tpu-migrate has them")
    raise SystemExit(2 if report.errors else 0)


@runtime_command.command("wheel", short_help="Write one for an index or an image.")
@click.option("--target", required=True, type=TargetName(), help="Whose runtime.")
@click.option("--portable", is_flag=True, help="That of programs that choose their device.")
@click.option(
    "-o", "--output", default=".", show_default=True, type=click.Path(path_type=Path),
    help="The folder that the wheel is written to.",
)  # fmt: skip
def wheel_command(target: str, portable: bool, output: Path) -> None:
    """Write the wheel of a runtime, to put it on an index or into an image; print its path."""
    from migrator.targets import find_target
    from migrator.targets import portable as chooses
    from migrator.targets.wheel import runtime_wheel

    found = chooses(find_target(target)) if portable else find_target(target)
    if found.runtime is None:
        raise UsageError(f"--target {target}: its programs need no runtime")
    wheel = runtime_wheel(found)
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / wheel.file_name).write_bytes(wheel.content)
    except OSError as error:
        raise UsageError(f"-o {output}: {error.strerror or error}") from error
    click.echo(printable(output / wheel.file_name))


def _top(path: Path) -> Path:
    """The folder of a copy for its files."""
    from migrator.targets import RUNTIME

    return next((parent for parent in path.parents if parent.name == RUNTIME), path)
