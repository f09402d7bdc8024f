"""Standard input to standard output; what is to be said, to standard error."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from migrator.cli.migration_arguments import MigrationArguments
from migrator.cli.output import print_diff, render_console, says_nothing, write_reports
from migrator.config import Config
from migrator.pipeline import todo
from migrator.pipeline.result import Result
from migrator.report import View
from migrator.report.terminal import console
from migrator.runs.run import migrate_content
from migrator.runs.run_report import FileReport, Report
from migrator.runs.run_targets import chosen_targets, label
from migrator.runs.worker import migrated
from migrator.targets import RUNTIME


def filter_input(asked: MigrationArguments, config: Config) -> int:
    """Migrate standard input; the exit code."""
    report = _report(asked, config)
    source = report.files[0].result.source
    if asked.diff:
        print_diff(replace(report, companions={}))
    elif not asked.check_only:
        sys.stdout.buffer.write(source)
        sys.stdout.flush()
    code = asked.exit_code(report)
    view = View(code, statistics=asked.statistics)
    told = write_reports(report, asked, view, err=not asked.check_only)
    if not told and not says_nothing(report, asked):
        render_console(report, asked, stderr=True)
        unnamed = asked.stdin_filename is None
        missing = report.files[0].result.companions if unnamed else report.companions
        if missing and not asked.quiet:
            said = f"The result imports {RUNTIME}, which a run on files (PATH) writes."
            console(stderr=True).print(said)
    return code


def _report(asked: MigrationArguments, config: Config) -> Report:
    """What becomes of the text, as the file that it stands for, if it does for one."""
    source, path = sys.stdin.buffer.read(), Path(asked.stdin_filename or "<stdin>")
    if asked.strip_todo:
        return Report("", [FileReport(path, Result(source, todo.strip(path, source)))])
    if asked.stdin_filename is not None:
        return migrate_content(path, source, config.targets, config=config)
    targets = chosen_targets(config.targets)
    return Report(label(targets), [migrated(path, source, targets, config.options)])
