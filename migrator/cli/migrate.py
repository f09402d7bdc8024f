"""``tpu-migrate migrate``, the default command. What is heavy is imported when it runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator.cli.completion_values import codes, folders, formats, paths
from migrator.cli.migration_arguments import MigrationArguments
from migrator.cli.option_groups import GroupedCommand
from migrator.cli.output import show, write_reports
from migrator.cli.progress import Progress
from migrator.codes import current
from migrator.config import Config, check_codes, load, load_file
from migrator.errors import UsageError
from migrator.files import witness
from migrator.files.user_folders import resolved
from migrator.report import FORMATS, View, check_file
from migrator.report.terminal import color_option, console, printable
from migrator.targets.target_argument import TargetName

if TYPE_CHECKING:
    from migrator.runs.run_report import Report

AUTO = "auto"  # in place of a target's name: the one that gets furthest


def _codes(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    codes = current(c.strip() for part in value for c in part.split(",") if c.strip())
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
        if resolved(path) in written:
            raise UsageError(f"--format {form}: another report goes there; name another file")
        written.add(resolved(path))
        files[path] = name
    if len(printed) > 1:
        raise UsageError(f"choose one --format to print; write others to files: {printed[1]}=FILE")
    return printed[0] if printed else "console", files


def _absolute(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Settings are relative to their own folder."""
    return None if path is None else str(Path(path).absolute())


def _part(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int]:
    """`2/5`: the second of five parts."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value or "1/1")
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"--part {value}: it takes 1/N to N/N")
    return number, count


@click.command("migrate", cls=GroupedCommand, short_help="Rewrite PATH... (the default command).")
@click.argument("paths", nargs=-1, metavar="PATH...", shell_complete=paths)
@click.option(
    "--target",
    multiple=True,
    type=TargetName(AUTO),
    help="What the code is to run on; once per framework. auto: what `assess` recommends.",
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
@click.option(
    "--check", "check_only", is_flag=True, help="Write nothing; exit 1 if there is something to do."
)
@click.option(
    "--exit-zero",
    is_flag=True,
    help="With --check or --diff: exit 0 even if there is something to do.",
)
@click.option(
    "--watch", is_flag=True, help="Keep running, and migrate again what changes, until Ctrl-C."
)
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
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Files or folders to skip, instead of those in the configuration.",
)
@click.option(
    "--extend-exclude", multiple=True, metavar="PATTERN", help="More files or folders to skip."
)
@click.option(
    "--precision",
    type=click.Choice(["high", "default"]),
    help="Float32 products: high (bf16×3, about TF32) or default (bf16), faster than float32.",
)
@click.option(
    "--runtime",
    type=click.Choice(["wheel", "package", "copy"]),
    help="How programs get the runtime: a wheel in vendor that the requirements name (default); "
    "package: only the requirement; copy: the folder tpu_runtime beside them.",
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
    help="Devices that a multi-device program uses: all (default), or 1.",
)
@click.option(
    "--python",
    type=click.Path(exists=True),
    callback=_absolute,
    help="The environment that the program will run in, its folder or interpreter: only what its "
    "versions lack is upgraded (default: the versions that the target pins).",
)
@click.option(
    "--todo-comments",
    is_flag=True,
    help="Write `# TPU-TODO[CODE]: reason` above what is reported.",
)
@click.option("--strip-todo", is_flag=True, help="Only remove these comments.")
@click.option(
    "--add-ignores",
    is_flag=True,
    help="Only write `# tpu-migrate: ignore[CODE]` at what is reported, so that only new code is.",
)
@click.option(
    "--diff-base",
    is_flag=False,
    flag_value="auto",
    metavar="[REV]",
    help="With --check or --diff: only what concerns lines that differ from this revision of "
    "git's; without REV, from the default branch.",
)
@click.option(
    "--stdin-filename",
    metavar="PATH",
    help="With -: the file that the text comes from; it need not be saved.",
)
@click.option(
    "--hook",
    is_flag=True,
    help="PATH... come from a hook: none is fine, excluded ones are passed over; exit 1 if "
    "anything was written, or git does not have the runtime.",
)
@click.option(
    "--only-named",
    is_flag=True,
    help="A file means itself, not its program: what it imports is left behind, and exit 1 if that "
    "would change.",
)
@click.option(
    "--config",
    "configuration",
    metavar="FILE",
    shell_complete=paths,
    help="Take [tool.tpu-migrate] from this TOML file, not from what is around PATH.",
)
@click.option("--isolated", is_flag=True, help="Read no configuration files.")
@click.option("--show-settings", is_flag=True, help="Only print the settings in force, as TOML.")
@click.option("--show-files", is_flag=True, help="Only print the files that would be looked at.")
@click.option(
    "--undo", is_flag=True, help="Only take back the last run in place of PATH's project."
)
@click.option(
    "--part",
    callback=_part,
    metavar="I/N",
    help="With --check or --diff: the I-th of N parts of the files, no program divided.",
)
@click.option(
    "--executor", metavar="dask://HOST:PORT", help="Migrate on the workers of a Dask scheduler."
)
@click.option("--no-cache", is_flag=True, help="Look at every file, without the cache.")
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
def migrate_command(**values: Any) -> None:
    """Rewrite PATH... for the target (the default command)."""
    asked = MigrationArguments(
        **{field.name: values.pop(field.name) for field in fields(MigrationArguments)}
    )
    if asked.hook and asked.names_no_path:
        sys.exit(0)
    if not asked.paths and (asked.show_settings or asked.show_files):
        asked = replace(asked, paths=(".",))
    asked.check_paths()
    if asked.undo:
        from migrator.cli.undoing import take_back

        sys.exit(take_back(asked))
    sys.exit(_run(asked, values))


def _run(asked: MigrationArguments, values: Mapping[str, Any]) -> int:
    """Do what is asked for; the exit code."""
    config = _config(asked).with_overrides(**values)
    if asked.show_settings or asked.show_files:
        from migrator.cli.settings_commands import show_files, show_settings

        for said in (show_settings(config) if asked.show_settings else "",
                     show_files(asked.paths, config) if asked.show_files else ""):  # fmt: skip
            click.echo(said) if said else None
        return 0
    if asked.strip_todo and values["todo_comments"]:
        raise UsageError("choose one of --todo-comments and --strip-todo")
    if config.target is None and not asked.strip_todo:
        from migrator.cli.missing_target import missing_target

        raise missing_target(asked.paths, AUTO)
    asked.check()
    if AUTO in config.targets:
        config = _with_chosen_target(asked, config)
    if asked.is_standard_input:
        from migrator.cli.stdin import filter_input

        return filter_input(asked, config)
    if not asked.watch:
        return _migrate(asked, config)
    from migrator.cli import watch_files

    watch_files.check()
    return watch_files.watch(
        asked, lambda: _migrate(asked, config), lambda changed: _report(changed, config)
    )


def _with_chosen_target(asked: MigrationArguments, config: Config) -> Config:
    """Take what gets furthest with all of the paths, and say why on standard error."""
    if asked.is_standard_input or asked.hook or asked.diff_base is not None:
        raise UsageError("--target auto looks at whole programs: name a target for a part of them")
    if len(config.targets) > 1:
        raise UsageError("--target auto chooses for every framework: name no other target")
    from migrator.assess.assessment import choose

    with Progress(asked.quiet) as progress:
        found = choose(asked.paths, config, progress)
    for each in found if not asked.quiet else ():
        click.echo(f"--target {printable(each.why)}", err=True)
    return replace(config, targets=tuple(each.best.target for each in found))


def _config(asked: MigrationArguments) -> Config:
    if asked.configuration is not None and asked.isolated:
        raise UsageError("choose one of --config and --isolated")
    if asked.configuration:
        return load_file(Path(asked.configuration))
    return Config() if asked.isolated else load(asked.start)


def _migrate(asked: MigrationArguments, config: Config) -> int:
    """Migrate the files at the paths, and say what became of them; the exit code."""
    page = Path(asked.page) if asked.page else None
    if page is not None:
        from migrator.report import html

        html.check(page)
        if resolved(page) in map(resolved, asked.forms[1]):
            raise UsageError(f"--report {page}: another report goes there; name another file")
    report = _report(asked, config)
    code = asked.exit_code(report)
    if asked.hook and (report.changed or report.companions or report.untracked):
        code = code or 1
    if not write_reports(report, asked, View(code, asked.writes, asked.statistics)):
        show(report, asked)
    if page is not None:
        html.write(report, page, written=not asked.looks)
        if asked.forms[0] == "console" and not asked.quiet:
            said = f"report: {printable(page)}"
            console(stderr=asked.diff).print(said, soft_wrap=True, markup=False)
    return code


def _report(asked: MigrationArguments, config: Config) -> Report:
    from migrator.runs.executors import executor_at
    from migrator.runs.run import migrate_paths, strip_todos

    options: dict[str, Any] = {
        "config": config, "write": asked.writes, "output": asked.output,
        "allow_dirty": asked.allow_dirty,
    }  # fmt: skip
    if asked.add_ignores:
        from migrator.runs.adding_ignores import add_ignores

        return add_ignores(
            asked.paths, config.targets, config, write=asked.writes, allow_dirty=asked.allow_dirty
        )
    if asked.strip_todo:
        if asked.diff_base is not None:
            raise UsageError("--diff-base does not go with --strip-todo")
        return strip_todos(asked.paths, **options)
    options |= {
        "diff_base": asked.diff_base,
        "from_hook": asked.hook,
        "part": asked.part,
        "only_named": asked.only_named,
    }
    noting = witness.watching() if asked.uses_cache else nullcontext()
    with noting, executor_at(asked.executor) as executor, Progress(asked.quiet) as progress:
        return migrate_paths(
            asked.paths, config.targets, progress=progress, executor=executor, **options
        )
