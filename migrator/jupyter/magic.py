"""`%%tpu_migrate`: shows what becomes of a cell, and runs that."""

from __future__ import annotations

import ast
import sys
from argparse import Namespace
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError as BadUse
from IPython.core.magic_arguments import MagicArgumentParser

from migrator.config import load
from migrator.errors import UsageError
from migrator.jupyter.migrated_cells import MAGIC, Cells, MigratedCell
from migrator.report.console import show_cell
from migrator.report.terminal import console
from migrator.runs.run import check
from migrator.runs.run_report import Report
from migrator.runs.run_targets import chosen_targets
from migrator.targets import Target, names
from migrator.targets.copies import folder_to_import

_NAME = MAGIC.removeprefix("%%")
_CALL = f"get_ipython().run_cell_magic({_NAME!r}, "


def register(shell: Any) -> None:
    """Add the magic to an IPython shell."""
    magic = Magic(shell)
    shell.register_magic_function(magic.tpu_migrate, "cell", _NAME)
    shell.input_transformers_post.append(magic.awaited)


class Magic:
    """The magic of one kernel, which runs on one target."""

    def __init__(self, shell: Any) -> None:
        self._shell, self._cells = shell, Cells()
        self._given: str | None = None  # the target that an earlier cell names
        self._running: str | None = None  # the target whose runtime can be imported
        self._parser = MagicArgumentParser(MAGIC, description=self.tpu_migrate.__doc__)
        add = self._parser.add_argument
        add("--target", choices=names(), help="needed once, unless it is configured")
        add("--unsafe", action="store_true", help="make edits that may change results, too")
        add("--diff", action="store_true", help="only show the diff")

    def awaited(self, lines: list[str]) -> list[str]:
        """What IPython makes of a cell: its call of the magic is awaited, if the cell awaits."""
        if not lines or not lines[0].startswith(_CALL):
            return lines
        call = ast.parse("".join(lines), mode="eval").body
        assert isinstance(call, ast.Call)
        if not self._awaits(ast.literal_eval(call.args[2])):
            return lines
        return [f"await {lines[0]}", *lines[1:]]

    def _awaits(self, cell: str) -> bool:
        asked: bool = self._shell.should_run_async(
            cell, transformed_cell=self._shell.transform_cell(cell)
        )
        return asked

    def tpu_migrate(self, line: str, cell: str) -> Awaitable[None] | None:
        """Show the migration of a cell, and run it in the notebook's namespace.

        %%tpu_migrate [--target TARGET] [--unsafe] [--diff]
        """
        asked = self._parser.parse_argstring(line)
        try:
            migrated, target = self._migrated(asked, cell)
            show_cell(Report(target.label, [migrated.report]), console(shows_color=True))
            if not asked.diff:
                self._make_importable(target)
        except UsageError as error:
            raise BadUse(str(error)) from None
        self._given = asked.target or self._given
        if asked.diff:
            return self._run_async("") if self._awaits(cell) else None
        if migrated.set_up:
            _raise_error_of(self._shell.run_cell(migrated.set_up))
        self._cells.accept(migrated)
        if self._awaits(cell):
            return self._run_async(migrated.source)
        _raise_error_of(self._shell.run_cell(migrated.source))
        return None

    def _migrated(self, asked: Namespace, cell: str) -> tuple[MigratedCell, Target]:
        config = load(Path.cwd()).with_overrides(
            target=asked.target or self._given, unsafe=asked.unsafe
        )
        if config.target is None:
            raise UsageError(f"no target given: {MAGIC} --target {' or '.join(names())}")
        config = replace(config, portable=False, todo_comments=False)  # it runs here and now
        targets = chosen_targets(config.targets)
        check(config, targets[0])
        migrated = self._cells.migrate(cell, self._earlier(cell), targets, config)
        return migrated, targets[0]

    def _earlier(self, cell: str) -> list[str]:
        """What was typed before: IPython's history already has this cell, if it keeps it."""
        earlier: list[str] = self._shell.history_manager.input_hist_raw[1:]
        is_kept = bool(earlier) and earlier[-1].rstrip().endswith(cell.rstrip())
        return earlier[:-1] if is_kept else earlier

    def _make_importable(self, target: Target) -> None:
        """Let cells import the target's runtime, which is a part of this package."""
        if target.runtime is None or self._running == target.name:
            return
        if self._running is not None:
            raise UsageError(f"this kernel runs {self._running}: restart it for {target.name}")
        sys.path.insert(0, str(folder_to_import(target.name)))
        self._running = target.name

    async def _run_async(self, source: str) -> None:
        code = self._shell.transform_cell(source)
        _raise_error_of(await self._shell.run_cell_async(source, transformed_cell=code))


def _raise_error_of(done: Any) -> None:
    """An error of a cell ends the cell with the magic, too."""
    error = done.error_before_exec or done.error_in_exec
    if error is not None:
        error._render_traceback_ = list  # it was shown
        raise error
