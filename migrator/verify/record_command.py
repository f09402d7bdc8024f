"""``tpu-migrate record``. Heavy imports happen when it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from migrator.report.terminal import color_option, console

from . import shared_options


@click.command("record", short_help="Run a GPU script and record what it computes.")
@click.argument("script", metavar="SCRIPT.py")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the golden: a new one, or one to replace.",
)
@shared_options.python("Run with this interpreter, which needs torch (default: tpu-migrate's own).")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module name, as for `python -m`.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
@shared_options.count("--steps", 5, 1, "How many calls of each model are kept, inputs and outputs.")
@click.option("--dropout", is_flag=True, help="Same dropout masks in all runs; else no dropout.")
@click.option("--layers", is_flag=True, help="Keep the outputs of every layer, too.")
@shared_options.count(
    "--roundings", 3, 0, "Extra runs with different rounding, to measure its effect."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit; what was recorded by then is kept.",
)
@shared_options.devices("Scripts with ranks: run on N GPUs.")
@shared_options.memory("Memory that each run may allocate.")
@color_option
def record_command(
    script: str,
    arguments: tuple[str, ...],
    output: Path,
    python: Path | None,
    module: bool,
    seed: int,
    steps: int,
    dropout: bool,
    layers: bool,
    roundings: int,
    timeout: float,
    devices: int | None,
    memory: float | None,
) -> None:
    """Run a GPU script unchanged and record what it computes, for `verify SCRIPT --golden DIR`.

    It runs in a copy of the current folder (or of its own, if it is elsewhere), on this machine's
    GPU, or on the CPU if there is none. Random numbers are drawn on the CPU, so that they are the
    same on a TPU. Extra runs with different rounding show the effect of rounding.
    """

    from .goldens import device_of
    from .number_formats import show_notes
    from .originals import record_script
    from .recordings import RecordSettings
    from .verify_errors import VerifyError

    out = console(stderr=True)
    settings = RecordSettings(
        seed,
        steps,
        roundings,
        dropout,
        timeout=timeout,
        memory=shared_options.in_bytes(memory),
        layers=layers,
    )
    try:
        recording, notes = record_script(
            Path(script), arguments, output, python or Path(sys.executable), settings,
            module=module, devices=devices, console=out,
        )  # fmt: skip
    except VerifyError as error:
        raise click.UsageError(f"{script}: {error}") from error
    show_notes(notes, out)
    size = sum(path.stat().st_size for path in output.iterdir()) / 1e6
    losses = sum(event["kind"] == "loss" for event in recording.events)
    click.echo(
        f"{output}: recorded on {device_of(recording.machine)}: {recording.steps} steps of "
        f"optimizers, {losses} losses, {len(recording.files)} files, {size:.1f} MB"
    )
