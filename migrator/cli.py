"""The command line. Exit codes: 0 done, 1 `--check` or `--diff` found something, 2 an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator import __version__
from migrator.config import Config, UsageError, check_codes, load
from migrator.targets import RUNTIME, targets

if TYPE_CHECKING:
    from rich.console import Console

    from migrator.run import Report


class _Group(click.Group):
    """A group whose first word may also be a path: `tpu-migrate src/ --target torchax`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # a folder may be called `rules`; nobody asks for the table of rules with a target
        named = bool(args) and args[0] in self.commands
        if named and args[0] in ("rules", "explain") and "--target" in args:
            named = not Path(args[0]).exists()
        if args and not named and args[0] not in ("--help", "-h", "--version"):
            args.insert(0, "migrate")
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "PATH... --target torchax|torch_xla [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the default command are this program's options."""
        options = [
            p for p in (*migrate.params, *self.get_params(ctx)) if p.param_type_name == "option"
        ]
        records = [p.get_help_record(ctx) for p in options]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])
        self.format_commands(ctx, formatter)


def _codes(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    codes = tuple(c.strip() for part in value for c in part.split(",") if c.strip())
    check_codes(codes, f"--{parameter.name}")
    return codes


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tpu-migrate")
def cli() -> None:
    """Rewrite GPU PyTorch source so that it runs on a TPU.

    PATH... are Python files or folders, or `-` for standard input. Files are rewritten in place,
    only if they change and only if git holds what they are now.
    """


@cli.command()
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--target", type=click.Choice(list(targets())), help="What the code shall run on.")
@click.option("-o", "--output", metavar="DIR", help="Write a migrated copy there; PATH stays.")
@click.option("--diff", is_flag=True, help="Show a unified diff; write nothing.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything is to do.")
@click.option(
    "--select", multiple=True, callback=_codes, metavar="CODE,…", help="Only these rules."
)
@click.option("--ignore", multiple=True, callback=_codes, metavar="CODE,…", help="Not these rules.")
@click.option("--unsafe", is_flag=True, help="Make edits that may change results, too.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Files or folders to pass over.")
@click.option(
    "--precision",
    type=click.Choice(["high", "default"]),
    help="Float32 products: high (bf16×3, about TF32) or default (bf16), faster than float32.",
)
@click.option(
    "--runtime",
    type=click.Choice(["bundled", "installed"]),
    help="Write the runtime beside the code (default), or import an installed one.",
)
@click.option(
    "--portable", is_flag=True, help="The program still runs on a GPU or a CPU, too; it chooses."
)
@click.option(
    "--shard",
    type=click.Choice(["replicated", "fsdp", "tp", "tp-row"]),
    help="Models on several devices: all of a model on each (default); fsdp: a part of each "
    "parameter (data-parallel programs, torchax); tp, tp-row: divided layers, by a table.",
)
@click.option(
    "--num-cores",
    type=click.Choice(["1", "all"]),
    help="Devices of a program for several: all (default), or 1.",
)
@click.option(
    "--todo-comments", is_flag=True, help="Write `# TPU-TODO[CODE]: reason` above what is left."
)
@click.option("--strip-todo", is_flag=True, help="Only take these comments out again.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes to use.")
@click.option(
    "--format", "form", type=click.Choice(["console", "json"]), default="console", show_default=True
)
@click.option("--statistics", is_flag=True, help="Count constructs by rule.")
@click.option("--strict", is_flag=True, help="With --check or --diff: advice counts, too.")
@click.option("--allow-dirty", is_flag=True, help="Overwrite files that git does not hold.")
@click.option("-q", "--quiet", is_flag=True, help="Errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Every edit, and what is right as it stands.")
def migrate(
    paths: tuple[str, ...],
    target: str | None,
    output: str | None,
    diff: bool,
    check: bool,
    form: str,
    statistics: bool,
    strict: bool,
    allow_dirty: bool,
    quiet: bool,
    verbose: bool,
    strip_todo: bool,
    **overrides: Any,
) -> None:
    """Rewrite PATH... for the target (the default command)."""
    if not paths:
        raise UsageError("no PATH given (a file, a folder, or - for standard input)")
    standard_input = paths == ("-",)
    start = Path.cwd() if standard_input else Path(paths[0])
    config = load(start).with_overrides(target=target, **overrides)
    if strip_todo and overrides["todo_comments"]:
        raise UsageError("choose one of --todo-comments and --strip-todo")
    if config.target is None and not strip_todo:
        names = " or ".join(targets())
        raise UsageError(f"no target given: --target {names}, or target in [tool.tpu-migrate]")
    if sum((bool(output), diff, check)) > 1:
        raise UsageError("choose one of -o, --diff and --check")
    how = {"quiet": quiet, "verbose": verbose, "statistics": statistics}
    if standard_input:
        if output:
            raise UsageError("-o needs a PATH, not standard input")
        how |= {"diff": diff, "check": check}
        sys.exit(_filter(config, strip_todo=strip_todo, strict=strict, form=form, **how))
    from migrator.run import migrate_paths, strip_todos

    write = not (diff or check or output)
    options: dict[str, Any] = {"write": write, "output": output, "allow_dirty": allow_dirty}
    if strip_todo:
        report = strip_todos(paths, config=config, **options)
    else:
        with _Progress(quiet or form != "console") as progress:
            report = migrate_paths(
                paths, str(config.target), config=config, progress=progress, **options
            )
    if form == "json":
        from migrator.report import json

        click.echo(json.render(report, statistics))
    else:
        _show(report, diff=diff, written=write or bool(output), **how)
    sys.exit(report.check_code(strict) if diff or check else report.exit_code)


def _show(report: Report, *, diff: bool, written: bool, **how: bool) -> None:
    """The console output; with --diff, the diff alone goes to standard output."""
    from migrator.report import console

    if diff:
        from migrator.report.diff import unified

        if sys.stdout.isatty():
            console.show_diff(report, _console(), companions=False)
        else:
            sys.stdout.buffer.write(b"".join(unified(report)))
            sys.stdout.flush()
    console.render(report, _console(stderr=diff), written=written, **how)


def _filter(
    config: Config,
    *,
    strip_todo: bool,
    diff: bool,
    check: bool,
    strict: bool,
    form: str,
    **how: bool,
) -> int:
    """Standard input to standard output, what is to be said to standard error."""
    from migrator import todo
    from migrator.engine import Result
    from migrator.report import console, json
    from migrator.report.diff import unified
    from migrator.run import FileReport, Report, find_target, migrated

    source, path = sys.stdin.buffer.read(), Path("<stdin>")
    if strip_todo:
        report = Report("", [FileReport(path, Result(source, todo.strip(path, source)))])
    else:
        name = str(config.target)
        report = Report(name, [migrated(path, source, find_target(name), config.options)])
    result = report.files[0].result
    if diff:
        sys.stdout.buffer.write(b"".join(unified(report)))
    elif not check:
        sys.stdout.buffer.write(result.source)
    sys.stdout.flush()
    if form == "json":
        click.echo(json.render(report, how["statistics"]), err=not check)
    else:
        err = _console(stderr=True)
        console.render(report, err, written=not (diff or check), **how)
        if result.companions and not how["quiet"]:
            err.print(f"The result imports {RUNTIME}, which is written beside files given as PATH.")
    return report.check_code(strict) if diff or check else report.exit_code


@cli.command()
def rules() -> None:
    """List all rules."""
    from rich.table import Table

    from migrator.rule import registry

    table = Table(box=None, pad_edge=False)
    for column, style in (("code", "cyan"), ("name", "bold"), ("safety", ""), ("what it does", "")):
        table.add_column(column, style=style, no_wrap=column != "what it does")
    for rule in registry().rules.values():
        table.add_row(rule.code, rule.name, str(rule.safety), rule.summary)
    _console().print(table)


@cli.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain one rule: what it does, why, and before and after for each target."""
    from migrator.report.explain import explain as show
    from migrator.rule import registry

    found = [rule for known, rule in registry().rules.items() if known == code.upper()]
    if not found:
        raise UsageError(f"no rule has the code {code!r} (see: tpu-migrate rules)")
    show(found[0], _console())


class _Progress:
    """A bar on standard error while a long run goes on; nothing on short ones and in pipes."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent or not sys.stderr.isatty()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        if self.silent or total < 200:
            return
        if self.bar is None:
            from rich.progress import Progress

            self.bar = Progress(console=_console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("migrating", total=total)
        self.bar.update(self.task, completed=done)

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def main() -> None:
    """The entry point: every foreseen failure is one line on standard error and exit code 2."""
    from migrator.editor.command import lsp_command
    from migrator.verify.command import verify_command

    cli.add_command(lsp_command)
    cli.add_command(verify_command)
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"tpu-migrate: {error.format_message()}", err=True)
        sys.exit(2)
    except UsageError as error:
        click.echo(f"tpu-migrate: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
