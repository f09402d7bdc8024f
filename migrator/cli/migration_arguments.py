"""What the command line asks of a migration, beside what can be configured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.config import common
from migrator.errors import UsageError
from migrator.report import check as check_formats

if TYPE_CHECKING:
    from migrator.runs.run_report import Report


@dataclass(frozen=True)
class MigrationArguments:
    """The options of `tpu-migrate migrate` that `Config` does not have."""

    paths: tuple[str, ...]
    output: str | None
    diff: bool
    with_runtime: bool
    check_only: bool
    exit_zero: bool
    watch: bool
    forms: tuple[str, dict[Path, str]]  # the format that is printed, those of files
    page: str | None  # the HTML report
    statistics: bool
    strict: bool
    allow_dirty: bool
    quiet: bool
    verbose: bool
    strip_todo: bool
    add_ignores: bool
    diff_base: str | None
    stdin_filename: str | None
    hook: bool
    only_named: bool
    configuration: str | None
    isolated: bool
    show_settings: bool
    show_files: bool
    undo: bool
    no_cache: bool
    part: tuple[int, int]
    executor: str | None

    @property
    def is_standard_input(self) -> bool:
        return self.paths in (("-",), ())

    @property
    def start(self) -> Path:
        """Where configuration is looked for."""
        return Path(self.stdin_filename or "") if self.is_standard_input else common(self.paths)

    @property
    def looks(self) -> bool:
        """Whether it is only asked what would be done."""
        return self.diff or self.check_only

    @property
    def writes(self) -> bool:
        """Whether files are rewritten in place."""
        return not self.looks and not self.output

    @property
    def uses_cache(self) -> bool:
        """Whether results of groups of files are stored: nothing is written, git is not asked."""
        asks_git = self.hook or self.watch or self.diff_base is not None
        return self.looks and not (self.no_cache or self.is_standard_input or asks_git)

    @property
    def names_no_path(self) -> bool:
        """Whether a hook has nothing to do: no path is meant, not even by mistake."""
        return not self.paths and not (self.diff_base and os.path.lexists(self.diff_base))

    def exit_code(self, report: Report) -> int:
        """That of the run: 1 if it was only asked what there is to do, and something is."""
        code = report.check_code(self.strict) if self.looks else report.exit_code
        return 0 if self.exit_zero and code == 1 else code

    def check_paths(self) -> None:
        """Raise UsageError where it is not clear what is meant."""
        if not self.paths and self.stdin_filename is None:
            took = ""
            if self.diff_base:
                took = (
                    f"; {self.diff_base} is --diff-base's revision "
                    "(--diff-base=auto: the default branch)"
                )
            raise UsageError(f"no PATH given (a file, a folder, or - for standard input){took}")
        if self.stdin_filename is not None and not self.is_standard_input:
            raise UsageError("--stdin-filename goes with - (standard input), not with a PATH")

    def check(self) -> None:
        """Raise UsageError for options that do not go with each other."""
        if sum((bool(self.output), self.diff, self.check_only)) > 1:
            raise UsageError("choose one of -o, --diff and --check")
        if self.exit_zero and not self.looks:
            raise UsageError("--exit-zero goes with --check or --diff")
        if self.watch:
            self._check_watch()
        if self.add_ignores:
            self._check_ignores()
        if self.with_runtime and not self.diff:
            raise UsageError("--with-runtime goes with --diff")
        unnamed = self.is_standard_input and self.stdin_filename is None
        reports = (self.forms[0], *self.forms[1].values())
        check_formats(reports, stdin=unnamed, diff_base=self.diff_base is not None)
        if self.is_standard_input and (self.output or self.page or self.diff_base is not None):
            given = "-o" if self.output else "--report" if self.page else "--diff-base"
            raise UsageError(f"{given} needs a PATH, not standard input")

    def _check_ignores(self) -> None:
        self._refuse_beside(
            "--add-ignores",
            {
                "-": self.is_standard_input, "-o": self.output, "--hook": self.hook,
                "--strip-todo": self.strip_todo, "--diff-base": self.diff_base is not None,
                "--part": self.part[1] > 1,
            },
        )  # fmt: skip

    def check_undo(self) -> None:
        """Raise UsageError for options that do not go with --undo, which would be passed over."""
        self._refuse_beside(
            "--undo",
            {
                "-": self.is_standard_input, "-o": self.output, "--diff": self.diff,
                "--watch": self.watch, "--hook": self.hook, "--strip-todo": self.strip_todo,
                "--diff-base": self.diff_base is not None, "--report": self.page,
                "--format": self.forms != ("console", {}), "--part": self.part[1] > 1,
            },
        )  # fmt: skip

    def _check_watch(self) -> None:
        self._refuse_beside(
            "--watch",
            {
                "-": self.is_standard_input, "-o": self.output, "--hook": self.hook,
                "--report": self.page, "--format": self.forms != ("console", {}),
                "--strip-todo": self.strip_todo, "--part": self.part[1] > 1,
                "--executor": self.executor,
            },
        )  # fmt: skip

    def _refuse_beside(self, option: str, others: Mapping[str, object]) -> None:
        if given := [name for name, value in others.items() if value]:
            raise UsageError(f"{option} does not go with {given[0]}")
