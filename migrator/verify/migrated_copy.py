"""The migrated copy of an app's or a script's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.report.console import render, show_diff

if TYPE_CHECKING:
    from rich.console import Console


def write_migrated_copy(
    source: Path,
    target: str,
    destination: Path,
    config: Config,
    console: Console | None,
    diff: bool,
    script: str | None,
    kept: bool,
) -> list[str]:
    """Write a migrated copy that runs where nothing is installed; returns errors, one a line.

    With ``script``, problems in other files of the folder are only shown. ``console`` shows the
    migration; with ``diff`` all edits. A copy that is not ``kept`` is not named: places are those
    of the source.
    """
    try:
        config = replace(config, runtime="copy")
        report = migrate_paths([source], target=target, config=config, output=destination)
    except UsageError as error:
        return [str(error)]
    if console is not None:
        if diff:
            show_diff(report, console, companions=False)
        shown = report if kept else replace(report, output=None, copied=None)
        render(shown, console, written=kept)
        console.print()
    if script is not None and source / script not in [path for path, _ in report.failures]:
        return []
    if report.exit_code == 0:
        return []
    return list(report.errors) or [f"tpu-migrate ended with exit code {report.exit_code}"]
