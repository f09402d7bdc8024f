"""``tpu-migrate verify``. Heavy imports happen when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator.cli.completion_values import offer, paths
from migrator.report.terminal import color_option, console
from migrator.targets import DEFAULT, find_target
from migrator.targets.target_argument import TargetName

from . import shared_options
from .chips import SLICES
from .verify_arguments import VerifyArguments

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from .run_options import RunOptions
    from .script_result import ScriptResult
    from .tolerances import Tolerances
    from .verify_result import VerifyResult


class _Verify(click.Command):
    """Remembers the words that it was called with."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["asked"] = tuple(args)
        return super().parse_args(ctx, args)


def _complete_apps(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Apps of the checkout, and scripts."""
    from .apps import app_names
    from .verify_errors import VerifyError

    try:
        names = app_names()
    except VerifyError:
        names = []
    found = [offer(name) for name in names if name.startswith(incomplete)]
    return [*found, *paths(_context, _parameter, incomplete)]


@click.command("verify", cls=_Verify, short_help="Migrate, run, and compare the numbers.")
@click.argument("app", required=False, metavar="[APP|SCRIPT.py]", shell_complete=_complete_apps)
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS...]", shell_complete=paths)
@click.option("--all", "all_apps", is_flag=True, help="Verify every app of the checkout.")
@click.option(
    "--target",
    "chosen",
    type=TargetName("all"),
    help="Target to run on, or all of them in turn. Default: the one that [tool.tpu-migrate] names "
    f"for the script's framework, otherwise {DEFAULT}.",
)
@click.option(
    "--compile-for",
    type=click.Choice(SLICES),
    help="Compile with the real TPU compiler: memory, FLOPs, collectives. A script is then not "
    "compared; an app is.",
)
@click.option(
    "--golden",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Recording of SCRIPT.py by `tpu-migrate record` on a GPU; without it, the original runs "
    "on the CPU.",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="If numbers differ, find the operation that is the cause (a slow second run).",
)
@click.option(
    "--layers",
    is_flag=True,
    help="Scripts: also compare the outputs and gradients of every layer, and show the first that "
    "leaves its bound.",
)
@click.option(
    "--dropout", is_flag=True, help="Scripts: same dropout masks in all runs; else no dropout."
)
@click.option(
    "--float64",
    is_flag=True,
    help="Scripts: both compute in float64, on the CPU, so that no difference is rounding.",
)
@shared_options.count(
    "--steps", 5, 1, "Scripts: how many calls of each model are compared, inputs and outputs."
)
@shared_options.count(
    "--roundings", 3, 0,
    "Scripts without --golden: extra runs of the original with different rounding.",
)  # fmt: skip
@click.option(
    "--quick",
    is_flag=True,
    help="Scripts: compare the first steps only.",
)
@click.option("-m", "module", is_flag=True, help="The script is a module name, as for `python -m`.")
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="[KIND=]FACTOR",
    help="Scripts: multiply what is allowed, for everything or for one kind (output=4).",
)
@shared_options.memory("Scripts: memory that each run may allocate.")
@shared_options.devices("Run on N devices: virtual ones where there is no TPU.")
@click.option(
    "--shard",
    type=click.Choice(["tp", "tp-row"]),
    help="Migrate with --shard: models are divided over the N devices.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also run the app's benchmarks; takes minutes.",
)
@click.option("--diff", is_flag=True, help="Show the edits that the migration makes.")
@click.option("--portable", is_flag=True, help="Migrate with --portable.")
@click.option("--unsafe", is_flag=True, help="Migrate with --unsafe, and check those edits.")
@shared_options.python("Run with this interpreter.")
@click.option("--install", is_flag=True, help="Make the target's environment first (gigabytes).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of each run; default: 600 for a script, an app's own for an app.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Scripts: write edits and numbers, with a chart, to one HTML file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the migrated copy, outputs, log and dumped programs in a new folder under DIR.",
)
@color_option
def verify_command(**values: Any) -> None:
    """Migrate a script or an APP, run it, and compare its numbers with the original's.

    A script of yours runs unchanged (or was recorded on a GPU by `tpu-migrate record`), then
    migrated, in copies of the current folder. Losses, gradients, outputs, weights, files and
    printed numbers are compared. APP is a folder of reference_apps, which has a golden. With
    --compile-for, a script is not compared: its programs are compiled for the TPU. Exit code 0:
    everything passed; 1: numbers differ, the script failed, or a program doesn't compile for the
    TPU; 2: wrong usage or no environment.
    """
    from .app_table import summary
    from .table import show
    from .verify_result import VerifyResult
    from .what_next import what_next

    asked = VerifyArguments(**values)
    asked.check()
    out = console(stderr=asked.as_json)
    names, factors, how = asked.apps(), asked.factors(), asked.how(out)
    results: list[VerifyResult | ScriptResult] = []
    for name, target in ((n, target) for n in names for target in asked.targets(n)):
        if asked.is_script:
            found = _of_script(asked, target, how, factors)
        else:
            found = _of_app(name, target, asked, how)
        for result in found:
            results.append(result)
            if not asked.as_json:
                show(result, out if result.error is None else console(stderr=True))
    if asked.as_json:
        _print_json(results, single=len(results) == 1 and not asked.all_apps)
    elif len(results) == 1 and (said := what_next(results[0], asked)):
        out.print(said, markup=False, soft_wrap=True)
    elif asked.all_apps:
        out.print(summary([result for result in results if isinstance(result, VerifyResult)]))
    # Not context.exit(): it is lost where a caller does without click's standalone mode.
    raise SystemExit(max(result.exit_code for result in results))


def _of_script(
    asked: VerifyArguments, target: str, how: RunOptions, factors: Tolerances
) -> Iterator[VerifyResult | ScriptResult]:
    from migrator.report import html

    from . import verify_script
    from .script_table import numbers
    from .script_verification import verify_against

    script = Path(str(asked.app))
    if how.compile_for:
        yield verify_script(script, asked.arguments, target, **vars(how))
        return
    result = verify_against(
        script, asked.arguments, find_target(target), asked.golden, asked.settings(), how, factors,
        asked.module,
    )  # fmt: skip
    if asked.report is not None and result.migration is not None:
        html.write(result.migration, asked.report, written=False, numbers=numbers(result))
    yield result


def _of_app(
    name: str, target: str, asked: VerifyArguments, how: RunOptions
) -> Iterator[VerifyResult | ScriptResult]:
    """Verify an app; if it fails and --bisect is given, verify it again like a script."""
    from . import verify_app
    from .apps import find_app, recorded
    from .script import Script
    from .script_verification import verify_against
    from .verify_errors import VerifyError
    from .verify_result import VerifyResult

    try:
        app = find_app(name, target)
    except VerifyError as error:
        yield VerifyResult(name, target, error=str(error))
        return
    golden = recorded(name)
    if golden is not None and not how.compile_for:
        found = Script(app.folder, app.entry, app.args)
        settings = replace(asked.settings(), timeout=asked.timeout or app.timeout)
        yield verify_against(found, [], find_target(target), golden, settings, how)
        return
    result = verify_app(name, target, **vars(how))
    yield result
    if how.bisect and result.error is None and not result.passed:
        found = Script(app.folder, app.entry, app.args)
        yield verify_against(found, [], find_target(target), None, asked.settings(), how)


def _print_json(results: list[VerifyResult | ScriptResult], single: bool) -> None:
    from migrator.report import as_json

    found = [result.to_dict() for result in results]
    click.echo(as_json(found[0] if single else found))
