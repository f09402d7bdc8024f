"""The command line. Exit codes: 0 done, 1 `--check` or `--diff` found something, 2 an error."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from migrator import __version__
from migrator.completion import codes, completion_command, folders, formats, paths
from migrator.config import Config, check_codes, common, load, load_file
from migrator.errors import UsageError
from migrator.report import FORMATS, View, check_file
from migrator.report import check as check_formats
from migrator.report import render as rendered
from migrator.report import write as write_report
from migrator.report.terminal import color_option, console, shown, spell_out
from migrator.targets import RUNTIME
from migrator.targets import names as target_names
from migrator.targets.choice import TargetName

if TYPE_CHECKING:
    from migrator.run_report import Report


class _Group(click.Group):
    """A group whose first word may also be a path: `tpu-migrate src/ --target torchax`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # a folder may be called `rules`; nobody asks for the table of rules with a target
        named = bool(args) and args[0] in self.commands
        if named and args[0] in ("rules", "explain") and "--target" in args:
            named = not Path(args[0]).exists()
        if args and not named and args[0] not in ("--help", "-h", "--version"):
            meant = get_close_matches(args[0], self.commands, 1) if args[0].isalpha() else []
            if meant and not os.path.lexists(args[0]):
                raise UsageError(
                    f"{args[0]}: no such file or folder; did you mean the command {meant[0]}?"
                )
            args.insert(0, "migrate")
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Commands, and what the default command takes."""
        found = [*super().shell_complete(ctx, incomplete), *migrate.shell_complete(ctx, incomplete)]
        if not incomplete.startswith("-"):
            found.append(CompletionItem(incomplete, type="file"))
        return list({item.value if item.type == "plain" else "": item for item in found}.values())

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(
            ctx.command_path, f"PATH... --target {'|'.join(target_names())} [OPTIONS]"
        )
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


def _forms(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, dict[Path, str]]:
    """The format that is printed, and those that are written to files (`NAME=FILE`)."""
    printed: list[str] = []
    files: dict[Path, str] = {}
    written: set[Path] = set()
    for form in value:
        name, equals, file = form.partition("=")
        if name not in (FORMATS if equals else ("console", *FORMATS)) or (equals and not file):
            known = ", ".join(FORMATS)
            raise UsageError(f"--format {form}: it takes console, or NAME or NAME=FILE of {known}")
        if not file:
            printed.append(name)
            continue
        try:
            check_file(path := Path(file))
        except UsageError as error:
            raise UsageError(f"--format {form}: {error}") from None
        if path.resolve() in written:
            raise UsageError(f"--format {form}: another report goes there; name another file")
        written.add(path.resolve())
        files[path] = name
    if len(printed) > 1:
        raise UsageError(f"choose one --format to print; write others to files: {printed[1]}=FILE")
    return printed[0] if printed else "console", files


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tpu-migrate")
def cli() -> None:
    """Rewrite GPU PyTorch source so that it runs on a TPU.

    PATH... are Python files or folders, or `-` for standard input. Files are rewritten in place,
    only if they change and only if git holds what they are now.
    """


@cli.command()
@click.argument("paths", nargs=-1, metavar="PATH...", shell_complete=paths)
@click.option(
    "--target",
    multiple=True,
    type=TargetName(),
    help="What the code shall run on; once for each framework.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    shell_complete=folders,
    help="Write a migrated copy there; PATH stays.",
)
@click.option("--diff", is_flag=True, help="Show a unified diff; write nothing.")
@click.option("--with-runtime", is_flag=True, help="With --diff: the runtime's files, too.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything is to do.")
@click.option(
    "--select",
    multiple=True,
    callback=_codes,
    metavar="CODE,…",
    shell_complete=codes,
    help="Only these rules.",
)
@click.option(
    "--ignore",
    multiple=True,
    callback=_codes,
    metavar="CODE,…",
    shell_complete=codes,
    help="Not these rules.",
)
@click.option("--unsafe", is_flag=True, help="Make edits that may change results, too.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Files or folders to pass over.")
@click.option(
    "--precision",
    type=click.Choice(["high", "default"]),
    help="Float32 products: high (bf16×3, about TF32) or default (bf16), faster than float32.",
)
@click.option(
    "--runtime",
    type=click.Choice(["bundled", "whole", "installed"]),
    help="Write what the program needs of the runtime beside it (default), write all of it, or "
    "import an installed one.",
)
@click.option(
    "--portable", is_flag=True, help="The program still runs on a GPU or a CPU, too; it chooses."
)
@click.option(
    "--shard",
    type=click.Choice(["replicated", "fsdp", "tp", "tp-row"]),
    help="Models on several devices: all of a model on each (default); fsdp: a part of each "
    "parameter (data-parallel programs, not on every target); tp, tp-row: divided layers, by a "
    "table.",
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
@click.option(
    "--diff-base",
    is_flag=False,
    flag_value="auto",
    metavar="[REV]",
    help="With --check or --diff: only what concerns lines that differ from this revision of "
    "git's; without REV, from the default branch.",
)
@click.option(
    "--stdin-filename", metavar="PATH", help="With -: the file that standard input stands for."
)
@click.option(
    "--hook",
    is_flag=True,
    help="PATH... come from a hook: none is fine, excluded ones are passed over; exit 1 if "
    "anything was written, or git does not have the runtime.",
)
@click.option(
    "--config",
    "configuration",
    metavar="FILE",
    shell_complete=paths,
    help="Take [tool.tpu-migrate] from this TOML file, not from what is around PATH.",
)
@click.option("--isolated", is_flag=True, help="Take no configuration from files.")
@click.option(
    "--undo", is_flag=True, help="Only take back the last run in place of PATH's project."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes to use.")
@click.option(
    "--format", "forms", multiple=True, callback=_forms, metavar="NAME[=FILE]",
    shell_complete=formats,
    help=f"What to print: console (default), {', '.join(FORMATS)}. With =FILE: written there, too.",
)  # fmt: skip
@click.option("--report", "page", metavar="FILE.html", help="Write the run to one HTML file, too.")
@click.option("--statistics", is_flag=True, help="Count constructs by rule.")
@click.option("--strict", is_flag=True, help="With --check or --diff: advice counts, too.")
@click.option("--allow-dirty", is_flag=True, help="Overwrite files that git does not hold.")
@click.option("-q", "--quiet", is_flag=True, help="Errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Every edit, and what is right as it stands.")
@color_option
def migrate(
    paths: tuple[str, ...],
    target: tuple[str, ...],
    output: str | None,
    diff: bool,
    with_runtime: bool,
    check: bool,
    forms: tuple[str, dict[Path, str]],
    page: str | None,
    statistics: bool,
    strict: bool,
    allow_dirty: bool,
    quiet: bool,
    verbose: bool,
    strip_todo: bool,
    diff_base: str | None,
    stdin_filename: str | None,
    hook: bool,
    configuration: str | None,
    isolated: bool,
    undo: bool,
    **overrides: Any,
) -> None:
    """Rewrite PATH... for the target (the default command)."""
    took = ""
    if diff_base and not paths:
        took = f"; {diff_base} is --diff-base's revision (--diff-base=auto: the default branch)"
    if hook and not paths and not (took and os.path.lexists(str(diff_base))):
        sys.exit(0)
    if not paths and stdin_filename is None:
        raise UsageError(f"no PATH given (a file, a folder, or - for standard input){took}")
    standard_input = paths in (("-",), ())
    if stdin_filename is not None and not standard_input:
        raise UsageError("--stdin-filename goes with - (standard input), not with a PATH")
    if undo:
        sys.exit(_undo(paths, quiet=quiet))
    if configuration is not None and isolated:
        raise UsageError("choose one of --config and --isolated")
    start = Path(stdin_filename or "") if standard_input else common(paths)
    if configuration:
        config = load_file(Path(configuration))
    else:
        config = Config() if isolated else load(start)
    config = config.with_overrides(target=target, **overrides)
    if strip_todo and overrides["todo_comments"]:
        raise UsageError("choose one of --todo-comments and --strip-todo")
    if config.target is None and not strip_todo:
        names = " or ".join(target_names())
        raise UsageError(f"no target given: --target {names}, or target in [tool.tpu-migrate]")
    if sum((bool(output), diff, check)) > 1:
        raise UsageError("choose one of -o, --diff and --check")
    if with_runtime and not diff:
        raise UsageError("--with-runtime goes with --diff")
    reports = (forms[0], *forms[1].values())
    unnamed = standard_input and stdin_filename is None
    check_formats(reports, stdin=unnamed, diff_base=diff_base is not None)
    how = {"quiet": quiet, "verbose": verbose, "statistics": statistics}
    if standard_input:
        if output or page or diff_base is not None:
            given = "-o" if output else "--report" if page else "--diff-base"
            raise UsageError(f"{given} needs a PATH, not standard input")
        how |= {"diff": diff, "check": check}
        path = Path(stdin_filename) if stdin_filename else None
        sys.exit(_filter(config, path, strip_todo=strip_todo, strict=strict, forms=forms, **how))
    from migrator.run import migrate_paths, strip_todos

    if page:
        from migrator.report import html

        html.check(Path(page))
        if Path(page).resolve() in map(Path.resolve, forms[1]):
            raise UsageError(f"--report {page}: another report goes there; name another file")
    write = not (diff or check or output)
    options: dict[str, Any] = {"write": write, "output": output, "allow_dirty": allow_dirty}
    if strip_todo:
        if diff_base is not None:
            raise UsageError("--diff-base does not go with --strip-todo")
        report = strip_todos(paths, config=config, **options)
    else:
        options |= {"diff_base": diff_base, "from_hook": hook}
        with _Progress(quiet or forms[0] != "console") as progress:
            report = migrate_paths(
                paths, config.targets, config=config, progress=progress, **options
            )
    code = report.check_code(strict) if diff or check else report.exit_code
    if hook and (report.changed or report.companions or report.untracked):
        code = code or 1
    if not _reports(report, forms, View(code, write, statistics)):
        # of a few lines, each edit is told
        how["verbose"] = verbose or (check and diff_base is not None)
        _show(report, diff=diff, written=write or bool(output), runtime=with_runtime, **how)
    if page:
        html.write(report, Path(page), written=write or bool(output))
        if forms[0] == "console" and not quiet:
            console(stderr=diff).print(f"report: {shown(page)}", soft_wrap=True, markup=False)
    sys.exit(code)


def _undo(paths: tuple[str, ...], *, quiet: bool) -> int:
    """Take back the last run, and say what became of its files."""
    from migrator.report.statistics import counted
    from migrator.run import undo

    done = undo(paths)
    for said, files in (("restored", done.restored), ("removed", done.removed)):
        if files and not quiet:
            click.echo(f"{said} {counted(len(files), 'file')}")
    for file in done.changed:
        click.echo(f"{shown(file)}: has changed since; left as it is", err=True)
    return 1 if done.changed else 0


def _reports(
    report: Report, forms: tuple[str, dict[Path, str]], view: View, *, err: bool = False
) -> bool:
    """Write what is asked for to files, and print it; False where the console is meant."""
    printed, files = forms
    for file, name in files.items():
        write_report(file, rendered(name, report, view))
    if printed == "console":
        return False
    click.echo(rendered(printed, report, view).encode("utf-8", "replace"), err=err)
    return True


def _says_nothing(report: Report, *, quiet: bool, statistics: bool, **how: bool) -> bool:
    """Whether the console has nothing to tell: a hook should not wait for the import of rich."""
    return quiet and not statistics and not report.errors and not report.failures


def _show(report: Report, *, diff: bool, written: bool, runtime: bool, **how: bool) -> None:
    """The console output; with --diff, the diff alone goes to standard output.

    It has the files of the `runtime` only if they are asked for.
    """
    if _says_nothing(report, **how) and not diff:
        return
    from migrator.report.console import render, show_diff

    if diff:
        from migrator.report.diff import unified

        if (out := console()).is_terminal:
            show_diff(report, out, companions=runtime)
        else:
            told = report if runtime else replace(report, companions={})
            sys.stdout.buffer.write(b"".join(unified(told)))
            sys.stdout.flush()
    render(report, console(stderr=diff), written=written, hidden=diff and not runtime, **how)


def _filter(
    config: Config,
    given: Path | None,
    *,
    strip_todo: bool,
    diff: bool,
    check: bool,
    strict: bool,
    forms: tuple[str, dict[Path, str]],
    **how: bool,
) -> int:
    """Standard input to standard output, what is to be said to standard error.

    `given` is the file that it stands for.
    """
    from migrator import todo
    from migrator.report.diff import unified
    from migrator.result import Result
    from migrator.run import migrate_content
    from migrator.run_report import FileReport, Report
    from migrator.run_targets import chosen, label
    from migrator.worker import migrated

    source, path = sys.stdin.buffer.read(), given or Path("<stdin>")
    if strip_todo:
        report = Report("", [FileReport(path, Result(source, todo.strip(path, source)))])
    elif given is not None:
        report = migrate_content(path, source, config.targets, config=config)
    else:
        targets = chosen(config.targets)
        report = Report(label(targets), [migrated(path, source, targets, config.options)])
    result = report.files[0].result
    if diff:
        sys.stdout.buffer.write(b"".join(unified(replace(report, companions={}))))
    elif not check:
        sys.stdout.buffer.write(result.source)
    sys.stdout.flush()
    code = report.check_code(strict) if diff or check else report.exit_code
    view = View(code, statistics=how["statistics"])
    if not _reports(report, forms, view, err=not check) and not _says_nothing(report, **how):
        from migrator.report.console import render

        err = console(stderr=True)
        render(report, err, written=not (diff or check), **how)
        missing = result.companions if given is None else report.companions
        if missing and not how["quiet"]:
            err.print(f"The result imports {RUNTIME}, which is written beside files given as PATH.")
    return code


@cli.command()
@click.option(
    "--test",
    "tested",
    metavar="PACKAGE",
    help="Only run the examples of an installed package's rules, or of a code, on every target.",
)
@color_option
def rules(tested: str | None) -> None:
    """List all rules, or test the examples of those that a package brings."""
    if tested is not None:
        from migrator.report.examples import show_examples

        sys.exit(0 if show_examples(tested, console()) else 1)
    from rich.table import Table

    from migrator.registry import registry

    out, table = console(), Table(box=None, pad_edge=False)
    wide = out.width >= 100
    columns = (("code", "cyan"), ("name", "bold"), ("safety", ""), ("what it does", ""))
    for column, style in columns if wide else (columns[0], columns[3]):
        table.add_column(column, style=style, no_wrap=column != "what it does")
    for rule in registry().rules.values():
        row = (rule.name, str(rule.safety), rule.summary)
        table.add_row(rule.code, *(row if wide else [f"[bold]{row[0]}[/] ({row[1]})\n{row[2]}"]))
    out.print(table)


@cli.command()
@click.argument("code", shell_complete=codes)
@color_option
def explain(code: str) -> None:
    """Explain a code: what it means, why, and before and after for each target."""
    from migrator.report.explain import every_code
    from migrator.report.explain import explain as show

    found = every_code().get(code.upper())
    if found is None:
        raise UsageError(f"nothing has the code {code!r} (see: tpu-migrate rules)")
    show(found, console())


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

            self.bar = Progress(console=console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("migrating", total=total)
        self.bar.update(self.task, completed=done)

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()


# Trees are many objects that stay: to look at them every 700 objects takes a quarter of all time.
_COLLECTING = (100_000, 20, 50)


def main() -> None:
    """The entry point: every foreseen failure is one line on standard error and exit code 2."""
    from migrator.doctor.command import doctor_command
    from migrator.editor.command import lsp_command
    from migrator.review.command import review_command
    from migrator.verify.command import verify_command
    from migrator.verify.record_command import record_command

    for command in (
        lsp_command, verify_command, record_command, review_command, doctor_command,
        completion_command,
    ):  # fmt: skip
        cli.add_command(command)
    spell_out()
    gc.set_threshold(*_COLLECTING)
    try:
        cli.main(prog_name="tpu-migrate", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"tpu-migrate: {shown(error.format_message())}", err=True)
        sys.exit(2)
    except UsageError as error:
        click.echo(f"tpu-migrate: {shown(error)}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)
