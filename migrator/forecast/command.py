"""``tpu-migrate forecast``. Heavy imports happen when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator.cli.completion_values import paths
from migrator.errors import UsageError
from migrator.report.terminal import color_option, console
from migrator.targets import DEFAULT, find_target
from migrator.targets.target_argument import TargetName
from migrator.verify import shared_options
from migrator.verify.chips import Chip, chip_of
from migrator.verify.chips import chips as known_chips

if TYPE_CHECKING:
    from rich.console import Console

    from migrator.verify.gpu_steps import GpuSteps

    from .forecast import Forecast
    from .ways import Way

_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command("forecast", short_help="Memory, time and cost on a TPU, by its compiler.")
@click.argument("script", metavar="SCRIPT.py", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]", shell_complete=paths)
@click.option("--target", type=TargetName(), default=DEFAULT, show_default=True,
              help="Only this one.")  # fmt: skip
@click.option("--chip", type=click.Choice(list(known_chips())), default="v6e", show_default=True,
              help="The TPU.")  # fmt: skip
@shared_options.count("--chips", 1, 1, "How many of them: 1, 4 or 8.")
@click.option("--steps", type=click.IntRange(min=1), help="Training steps, for hours and money.")
@click.option("--epochs", type=click.IntRange(min=1),
              help="Epochs; --steps is then how many steps each has.")  # fmt: skip
@click.option("--price", type=_POSITIVE, help="Price of a chip for an hour. Needs --steps.")
@click.option(
    "--efficiency", type=click.FloatRange(0, 1, min_open=True), default=0.4, show_default=True,
    help="The share of the bound that the steps reach, for hours and money.",
)  # fmt: skip
@click.option("--shard", type=click.Choice(["fsdp", "tp", "tp-row"]),
              help="Migrate with --shard, and --unsafe for fsdp.")  # fmt: skip
@click.option("--compute/--no-compute", default=True, show_default=True,
              help="Without: steps give zeros instead of being computed on the CPU.")  # fmt: skip
@click.option("--all-programs", is_flag=True,
              help="Compile programs of the first step, too, that no later one runs.",
)  # fmt: skip
@click.option("--largest", metavar="OPTION",
              help="Find the largest value of this option of the script that fits: its batch size.",
)  # fmt: skip
@click.option("--smallest", is_flag=True,
              help="Find the smallest slice that fits, with each --shard.")  # fmt: skip
@click.option("--recompute", is_flag=True,
              help="Compute activations of repeated blocks again, backwards.")  # fmt: skip
@click.option("--precision", type=click.Choice(["high", "default"]),
              help="Migrate with --precision, of float32 products.")  # fmt: skip
@click.option("--try", "tried", is_flag=True,
              help="Compile again with --recompute and each --precision; compare.")  # fmt: skip
@shared_options.python("Run with this interpreter.")
@click.option("--install", is_flag=True, help="Make the target's environment first (gigabytes).")
@click.option("--timeout", type=_POSITIVE, metavar="SECONDS", default=600.0, show_default=True,
              help="Stop the script after that: what it compiled until then counts.")  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--baseline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="An earlier forecast (--format json): a bound that is 10 % slower is a problem.",
)  # fmt: skip
@click.option("--golden", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Of `record` on a GPU: the steps' time and memory there stand beside.",
)  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html",
              help="Write a page, too: a roofline, memory, costs by line.")  # fmt: skip
@color_option
def forecast_command(
    script: Path, arguments: tuple[str, ...], target: str, chip: str, chips: int,
    steps: int | None, price: float | None, efficiency: float, shard: str | None,
    python: Path | None, install: bool, timeout: float, form: str, baseline: Path | None,
    report: Path | None, compute: bool, largest: str | None, smallest: bool,
    recompute: bool, precision: str | None, tried: bool, epochs: int | None,
    golden: Path | None, all_programs: bool,
) -> None:  # fmt: skip
    """Say what a script needs of a TPU, without a TPU: memory, least time, what costs most.

    The script is migrated and runs on the CPU, as by `verify --compile-for`; the TPU's compiler
    compiles its steps. No figure is of a run on a TPU. Exit code 0: all steps fit; 1: one does not,
    is missing, or slower than in the baseline; 2: no forecast.
    """
    from . import baseline as earlier
    from . import page
    from .forecast import forecast, priced
    from .ways import Way

    known = known_chips()[chip]
    asked = Way(shard, recompute, precision)
    _check(target, known, chips, largest, smallest, tried, asked)
    if price is not None and steps is None:
        raise UsageError("--price needs --steps N: how many training steps")
    if epochs is not None and steps is None:
        raise UsageError("--epochs needs --steps N: how many training steps an epoch has")
    before = earlier.read_baseline(baseline, f"{chip}-{chips}") if baseline else {}
    on_gpu = _on_gpu(golden) if golden is not None else None
    if report is not None:
        page.check(report)
    out = console(stderr=True)
    how: dict[str, Any] = {
        "python": _python(target, python, install, out),
        "timeout": timeout,
        "console": out,
        "compute": compute,
        "all_programs": all_programs,
    }

    def make(given: Sequence[str], count: int = chips, way: Way = asked) -> Forecast:
        return forecast(script, given, target, chip_of(f"{chip}-{count}"), **how, **way.options)

    found = _searched(known, arguments, largest, smallest, tried, asked, make)
    found = replace(found, on_gpu=on_gpu)
    if steps is not None and found.error is None:
        found = priced(found, steps, price, efficiency, epochs)
    if baseline is not None and found.error is None:
        found = replace(found, problems=[*found.problems, *earlier.slower(found, before, baseline)])
    if report is not None and found.error is None:
        page.write(found, report)
    _print(found, form, out)
    raise SystemExit(found.exit_code)


def _check(
    target: str, known: Chip, chips: int, largest: str | None, smallest: bool, tried: bool,
    asked: Way,
) -> None:  # fmt: skip
    """Raises UsageError."""
    if target != DEFAULT:  # the only one whose compiled steps it has been tried on
        raise UsageError(f"forecast needs --target {DEFAULT}: it can't compile steps of {target}")
    if chips not in known.topologies:
        counts = ", ".join(map(str, known.topologies))
        raise UsageError(
            f"--chips {chips}: the compiler knows slices of {counts} chips {known.name}"
        )
    if smallest and (largest or tried or asked.shard or asked.recompute or chips != 1):
        raise UsageError(
            "--smallest tries --chips, --shard and --recompute by itself; and not with --largest"
        )
    if tried and (largest or asked.recompute or asked.precision):
        raise UsageError("--try tries --recompute and --precision by itself; not with --largest")


def _searched(
    known: Chip, arguments: Sequence[str], largest: str | None, smallest: bool, tried: bool,
    asked: Way, make: Callable[..., Forecast],
) -> Forecast:  # fmt: skip
    """The forecast, with all that was tried for it."""
    from .largest import find_largest
    from .smallest_slice import find_smallest
    from .ways import try_changes

    if smallest:
        found, slices = find_smallest(
            known,
            lambda count, way: make(arguments, count, replace(way, precision=asked.precision)),
        )
        return replace(found, slices=slices)
    if tried:
        found, changes = try_changes(
            lambda way: make(arguments, way=replace(way, shard=asked.shard))
        )
        return replace(found, changes=changes)
    if largest is None:
        return make(arguments)
    found, trials = find_largest(largest, arguments, make)
    return replace(found, largest=largest, trials=trials)


def _print(found: Forecast, form: str, out: Console) -> None:
    """To standard output; with JSON, problems also to ``out``. Raises UsageError without any."""
    from .show_forecast import show

    if form == "json":
        from migrator.report import as_json

        click.echo(as_json(found.to_dict()))
        for problem in [found.error] if found.error else found.problems:
            out.print(problem, style="red", markup=False, soft_wrap=True)
    elif found.error is not None:
        raise UsageError(f"{found.script}: {found.error}")
    else:
        show(found, console())


def _on_gpu(golden: Path) -> GpuSteps:
    """Raises UsageError."""
    from migrator.verify import gpu_steps
    from migrator.verify.verify_errors import VerifyError

    try:
        return gpu_steps.read(golden)
    except VerifyError as error:
        raise UsageError(f"--golden {error}") from error


def _python(target: str, python: Path | None, install: bool, out: object) -> Path:
    """An interpreter with the target and libtpu. Raises UsageError."""
    from migrator.verify.choose_interpreter import choose_interpreter
    from migrator.verify.run_options import RunOptions
    from migrator.verify.verify_errors import VerifyError

    asked = RunOptions(python=python, install=install, console=out)  # type: ignore[arg-type]
    try:
        found = choose_interpreter(find_target(target), asked)
    except VerifyError as error:
        raise UsageError(str(error)) from error
    if "libtpu" not in found.versions and not os.environ.get("TPU_LIBRARY_PATH"):
        raise UsageError(
            f"libtpu, the TPU's compiler, is not installed in {found.python}: "
            f"tpu-migrate doctor --target {target} --install"
        )
    return found.python
