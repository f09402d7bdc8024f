"""The report of a run: the results of its files, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.diagnostics import Diagnostic, Outcome, Severity
from migrator.files.user_folders import resolved
from migrator.pipeline.result import Result

WHEEL = ".whl"

if TYPE_CHECKING:
    from migrator.analysis.import_verdicts import ImportedModule
    from migrator.files.revisions import Changes, NewLines


@dataclass(frozen=True)
class FileReport:
    path: Path
    result: Result
    unsafe: Counter[str] = field(default_factory=Counter)  # what --unsafe would rewrite, by code
    whole: Result | None = None  # also outside of the change that the run is limited to


@dataclass(frozen=True)
class Delivery:
    """A runtime that programs have to install."""

    what: Path | str  # a wheel, or a requirement
    named: tuple[Path, ...] = ()  # the lists of requirements that have it

    def said(self) -> str:
        """What it is, and how programs get it, in one line."""
        what = self.what if isinstance(self.what, str) else self.what.as_posix()
        said = f"{what} is the runtime of the migrated code"
        if self.named:
            said += f"; {', '.join(map(str, self.named))} name{'s' * (len(self.named) == 1)} it"
        read = next((path for path in self.named if path.suffix == ".txt"), None)
        return f"{said}: pip install {what if read is None else f'-r {read.as_posix()}'}"


@dataclass
class Report:
    """The summary of a run, and its exit code."""

    target: str
    files: list[FileReport] = field(default_factory=list)
    companions: dict[Path, bytes] = field(default_factory=dict)  # new or changed files
    deliveries: list[Delivery] = field(default_factory=list)  # of runs that change something
    obsolete: dict[Path, bytes] = field(default_factory=dict)  # files of a runtime that is replaced
    errors: list[str] = field(default_factory=list)  # not about a single source file
    notes: list[str] = field(default_factory=list)  # other notes
    output: Path | None = None  # where a copy was written
    copied: Path | None = None  # the folder that was copied
    changes: Changes | None = None  # lines that the run is limited to; None: all
    since: str = ""  # the revision that changes are counted from; "": no limit
    untracked: list[Path] = field(default_factory=list)  # runtimes that are not in git
    incomplete: bool = False  # a program would have to change in other files, too
    lacks_program: bool = False  # folders without a file that turns the target on
    seconds: float = 0.0
    # What its files import, with the files; looked up for reports that say it.
    find_imports: Callable[[], Mapping[ImportedModule, Sequence[Path]]] = dict

    def written_to(self, path: Path) -> Path:
        """Where a written file is."""
        if self.output is None or self.copied is None:
            return path
        return self.output / _relative(path, self.copied)

    @property
    def runtime(self) -> Path | None:
        """The runtime that comes first among what is to be written: a folder, or a wheel."""
        first = next(iter(self.companions), None)
        return first if first is None or first.suffix == WHEEL else first.parent

    @property
    def changed(self) -> list[FileReport]:
        return [f for f in self.files if f.result.changed]

    def diagnostics(self, *outcomes: Outcome) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d) for f in self.files for d in f.result.diagnostics if d.outcome in outcomes
        ]

    @property
    def unsafe(self) -> Counter[str]:
        """How many constructs --unsafe would rewrite, by the code of the rule."""
        return sum((f.unsafe for f in self.files), Counter())

    def count(self, outcome: Outcome) -> int:
        return len(self.diagnostics(outcome))

    @property
    def failures(self) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d)
            for f in self.files
            for d in f.result.diagnostics
            if d.severity is Severity.ERROR
        ]

    @property
    def advice(self) -> list[tuple[Path, Diagnostic]]:
        return [
            (f.path, d)
            for f in self.files
            for d in f.result.diagnostics
            if d.severity is Severity.ADVICE
        ]

    @property
    def exit_code(self) -> int:
        """0; 1 if a program is left in part; 2 if a file could not be processed."""
        return 2 if self.errors or self.failures else int(self.incomplete)

    def check_code(self, strict: bool = False) -> int:
        """Like `exit_code`, but 1 if edits are pending or manual changes are needed."""
        if self.exit_code:
            return self.exit_code
        pending = self.changed or self.companions or self.count(Outcome.REPORTED)
        return 1 if pending or (strict and self.advice) else 0


def limited(file: FileReport, changes: Changes) -> FileReport:
    """The diagnostics and edits of a file for lines that a change has added."""
    if not file.result.diagnostics and not file.result.changed:
        return file
    result = _brought(file.result, changes.lines(file.path, file.result.original))
    left = [d for d in result.diagnostics if d.outcome not in (None, Outcome.REWRITTEN)]
    unsafe = Counter(d.code for d in left)
    return FileReport(file.path, result, file.unsafe & unsafe, file.result)


def _brought(result: Result, lines: NewLines) -> Result:
    """The results that concern new lines. Edits belong together: all are kept, or none."""
    if lines.all:
        return result
    found = tuple(d for d in result.diagnostics if _is_about(d, lines))
    pending = result.changed and any(d.is_edit for d in found)
    source = result.source if pending else result.original
    # A migrated file needs its runtime; an unchanged file doesn't.
    companions = result.companions if pending or not result.changed else frozenset()
    return replace(result, source=source, diagnostics=found, companions=companions)


def _is_about(diagnostic: Diagnostic, lines: NewLines) -> bool:
    if diagnostic.severity is Severity.ERROR:
        return True  # of the whole file
    added = diagnostic.outcome is None and diagnostic.severity is Severity.INFO
    own = () if added else (diagnostic.range,)  # an insertion only has its position
    return any(map(lines.meets, (*own, *diagnostic.touched)))


def _relative(path: Path, top: Path) -> Path:
    try:
        return path.relative_to(top)
    except ValueError:
        return resolved(path).relative_to(resolved(top))
