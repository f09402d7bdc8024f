"""``tpu-migrate verify``. Everything heavy is imported when it runs."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.cli.values import apps, paths
from migrator.report.terminal import color_option, console
from migrator.targets import DEFAULT, find_target, targets
from migrator.targets import names as target_names
from migrator.targets.choice import TargetName

from . import options

if TYPE_CHECKING:
    from .recordings import Settings
    from .result import VerifyResult
    from .script_result import ScriptResult
    from .tolerances import Tolerances
    from .verification import Options


@click.command("verify")
@click.argument("app", required=False, metavar="[APP|SCRIPT.py]", shell_complete=apps)
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]", shell_complete=paths)
@click.option("--all", "all_apps", is_flag=True, help="Verify every app of the checkout.")
@click.option(
    "--target",
    "chosen",
    type=TargetName("all"),
    default=DEFAULT,
    show_default=True,
    help="What to run on; all: one after the other.",
)
@click.option(
    "--compile-for",
    type=click.Choice(list(options.TOPOLOGIES)),
    help="Also compile the programs by the real TPU compiler: memory, FLOPs, collectives.",
)
@click.option(
    "--golden",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="What `tpu-migrate record` kept of SCRIPT.py on a GPU; else the CPU runs the original.",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="Where it differs, find the operation (runs it again, slowly).",
)
@click.option("--dropout", is_flag=True, help="Of a script: dropout with the same masks, not off.")
@options.count(
    "--steps", 5, 1, "Of a script: calls of each model whose inputs and outputs are compared."
)
@options.count(
    "--roundings", 3, 0,
    "Of a script, without --golden: runs of the original that show what rounding does.",
)  # fmt: skip
@click.option(
    "--quick",
    is_flag=True,
    help="Of a script: its first steps only, one rounding, one run of the migrated script.",
)
@click.option("-m", "module", is_flag=True, help="The script is a module, as of `python -m`.")
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="[KIND=]FACTOR",
    help="Of a script: allow so many times as much, of all or of one kind, e.g. output=4.",
)
@options.memory("Of a script: what each run may allocate.")
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run on N devices: virtual ones where there is no TPU.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also run the app's own measurements: minutes, best on a quiet machine.",
)
@click.option("--diff", is_flag=True, help="Show the edits that the migration makes.")
@click.option("--portable", is_flag=True, help="Migrate with --portable.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run with this interpreter.",
)
@click.option("--install", is_flag=True, help="Make the target's environment first (gigabytes).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of the migrated script, else the app's own.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Of a script: its edits and numbers, with a chart, as one HTML file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the migrated copy, outputs, log and dumped programs in a new folder under DIR.",
)
@color_option
def verify_command(
    app: str | None,
    arguments: tuple[str, ...],
    all_apps: bool,
    chosen: str,
    compile_for: str | None,
    golden: Path | None,
    bisect: bool,
    dropout: bool,
    steps: int,
    roundings: int,
    quick: bool,
    module: bool,
    tolerances: tuple[str, ...],
    memory: float | None,
    devices: int | None,
    measure: bool,
    diff: bool,
    portable: bool,
    python: Path | None,
    install: bool,
    timeout: float | None,
    report: Path | None,
    as_json: bool,
    keep: Path | None,
) -> None:
    """Migrate APP, run it on its target and compare its numbers with its golden.

    APP is the name of a folder of reference_apps. A script of yours will do, too: it runs as it is
    (or was recorded on a GPU by `tpu-migrate record`), then migrated, in copies of the current
    folder, and what it computes is compared: losses, gradients, outputs, weights, files, printed
    numbers. With --compile-for it is only run, and the programs that it compiles are compiled for
    the TPU. Exit code 0: everything passed; 1: numbers differ, the script failed, or a program does
    not compile for the TPU; 2: wrong usage or no environment.
    """
    from .app_table import summary
    from .apps import app_names
    from .errors import VerifyError
    from .recordings import Settings
    from .result import VerifyResult
    from .table import show
    from .tolerances import Tolerances
    from .verification import Options

    if bool(app) == all_apps:
        raise click.UsageError("name one APP, or give --all")
    is_script = app is not None and (app.endswith(".py") or module or Path(app).is_file())
    if bisect and compile_for:
        raise click.UsageError("--bisect compares numbers, --compile-for does not")
    if compile_for:
        _refuse_of_compiling(chosen)
    if quick:
        _refuse_of_quick(is_script, compile_for)
    if is_script:
        _refuse_of_script(measure, module, compile_for, report, chosen)
    else:
        _refuse_of_app(golden, arguments, tolerances, memory, module, report)
    out = console(stderr=as_json)
    try:
        names = app_names() if all_apps else [str(app)]  # or one script
        factors = Tolerances.parse(tolerances)
    except VerifyError as error:
        raise click.UsageError(str(error)) from error
    settings = Settings(
        steps=steps, roundings=min(roundings, 1) if quick else roundings, dropout=dropout,
        timeout=timeout or 600.0, memory=options.in_bytes(memory), quick=quick,
    )  # fmt: skip
    how = Options(
        diff=diff, portable=portable, python=python, install=install, timeout=timeout, keep=keep,
        console=out, compile_for=compile_for, devices=devices, measure=measure, bisect=bisect,
    )  # fmt: skip
    results: list[VerifyResult | ScriptResult] = []
    for name, target in product(names, target_names() if chosen == "all" else [chosen]):
        if is_script:
            found = _of_script(
                Path(name), arguments, module, target, golden, settings, how, factors, report
            )
        else:
            found = _of_app(name, target, settings, how)
        for result in found:
            results.append(result)
            if not as_json:
                show(result, out if result.error is None else console(stderr=True))
    if all_apps and not as_json:
        out.print(summary([result for result in results if isinstance(result, VerifyResult)]))
    if as_json:
        _print_json(results, single=len(results) == 1 and not all_apps)
    # Not context.exit(): it is lost where a caller does without click's standalone mode.
    raise SystemExit(max(result.exit_code for result in results))


def _refuse_of_compiling(chosen: str) -> None:
    """Raises UsageError for a target whose programs can not be compiled for a TPU elsewhere."""
    able = [target.name for target in targets().values() if target.host.compiles_for_tpu]
    if chosen not in able:
        raise click.UsageError(f"--compile-for needs --target {' or '.join(able)}")


def _refuse_of_quick(is_script: bool, compile_for: str | None) -> None:
    """Raises UsageError for what --quick does not go with."""
    if not is_script or compile_for:
        raise click.UsageError("--quick compares the first steps of a SCRIPT.py")
    source = click.get_current_context().get_parameter_source("roundings")
    if source is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--quick makes one rounding: leave --roundings out")


def _refuse_of_script(
    measure: bool, module: bool, compile_for: str | None, report: Path | None, chosen: str
) -> None:
    """Raises UsageError for options that do not go with a script, or with each other."""
    from migrator.errors import UsageError
    from migrator.report import html

    if measure:
        raise click.UsageError("--measure runs what an app's app.toml names: name an app")
    if module and compile_for:
        raise click.UsageError("--compile-for runs a SCRIPT.py, not a module")
    if report is not None:
        if chosen == "all" or compile_for:
            raise click.UsageError("--report goes with a SCRIPT.py, on one target")
        try:
            html.check(report)
        except UsageError as error:
            raise click.UsageError(str(error)) from error


def _refuse_of_app(
    golden: Path | None,
    arguments: tuple[str, ...],
    tolerances: tuple[str, ...],
    memory: float | None,
    module: bool,
    report: Path | None,
) -> None:
    """Raises UsageError for options that do not go with an app."""
    if golden is not None:
        raise click.UsageError("--golden goes with a SCRIPT.py: an app has its own")
    if arguments:
        raise click.UsageError(f"arguments ({arguments[0]} …) go with a SCRIPT.py, not with an app")
    if tolerances or memory or module:
        raise click.UsageError("--tolerance, --memory and -m go with a script, not with an app")
    if report is not None:
        raise click.UsageError("--report goes with a SCRIPT.py, on one target")


def _of_script(
    script: Path,
    arguments: tuple[str, ...],
    module: bool,
    target: str,
    golden: Path | None,
    settings: "Settings",
    how: "Options",
    factors: "Tolerances",
    report: Path | None,
) -> "Iterator[VerifyResult | ScriptResult]":
    from migrator.report import html

    from . import verify_script
    from .script_table import numbers
    from .script_verification import verify_against

    if how.compile_for:
        yield verify_script(script, arguments, target, **vars(how))
        return
    words = find_target(target)
    result = verify_against(script, arguments, words, golden, settings, how, factors, module)
    if report is not None and result.migration is not None:
        html.write(result.migration, report, written=False, numbers=numbers(result))
    yield result


def _of_app(
    name: str, target: str, settings: "Settings", how: "Options"
) -> "Iterator[VerifyResult | ScriptResult]":
    """And where it disagrees, with --bisect, of the same app as a script."""
    from . import verify_app
    from .apps import find_app
    from .script import Script
    from .script_verification import verify_against

    result = verify_app(name, target, **vars(how))
    yield result
    if how.bisect and result.error is None and not result.passed:
        app = find_app(name, target)
        found = Script(app.folder, app.entry, app.args)
        yield verify_against(found, [], find_target(target), None, settings, how)


def _print_json(results: "list[VerifyResult | ScriptResult]", single: bool) -> None:
    import json

    found = [result.to_dict() for result in results]
    click.echo(json.dumps(found[0] if single else found, indent=2))
