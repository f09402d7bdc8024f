"""``tpu-migrate doctor``."""

from pathlib import Path

import click

from migrator.errors import UsageError
from migrator.report.terminal import color_option, console
from migrator.targets import find_target, names
from migrator.targets.target_argument import TargetName
from migrator.verify import shared_options


@click.command("doctor", short_help="Check this machine and its environments.")
@click.option(
    "--target",
    "wanted",
    multiple=True,
    type=TargetName(),
    help="Exit 1 unless all of these can run; without TARGET, unless one can.",
)
@shared_options.python("Check this interpreter, not those that verify would use.")
@click.option("--install", is_flag=True, help="Make the target's environment first (gigabytes).")
@click.option(
    "--format", "form", type=click.Choice(["console", "json"]), default="console", show_default=True
)
@color_option
def doctor_command(wanted: tuple[str, ...], python: Path | None, install: bool, form: str) -> None:
    """Say what this machine has, whether migrated programs can run here, and what is in the way.

    Each problem comes with the command that mends it. torch and jax are not imported, only looked
    at: whether a program really runs, `verify` shows.
    """
    from migrator.verify import environments, interpreters
    from migrator.verify.verify_errors import VerifyError

    from .diagnosis import diagnose
    from .show_diagnosis import show

    if install and (not wanted or python is not None):
        raise UsageError("--install needs a --target, and no --python")
    chosen = [find_target(name) for name in (wanted or names())]
    found = diagnose(chosen, python, every=bool(wanted))
    missing = [state.target for state in found.states if install and not state.ready]
    for target in missing:
        click.echo(f"Installing {environments.announcement(target)}", err=True)
        try:
            environments.install(target)
        except VerifyError as error:
            raise UsageError(str(error)) from error
    if missing:
        interpreters.forget()
        found = diagnose(chosen, python, every=bool(wanted))
    if form == "json":
        from migrator.report import as_json

        click.echo(as_json(found.to_dict()))
    else:
        show(found, console())
    raise SystemExit(found.exit_code)
