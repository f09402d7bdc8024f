"""How much was done, by rule, by file and in total, and the effort of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from migrator.analysis.import_verdicts import unknown
from migrator.codes import UPGRADES
from migrator.diagnostics import Diagnostic, Effort, Outcome
from migrator.runs.run_report import WHEEL, FileReport, Report
from migrator.targets import RUNTIME

MANY = 20  # constructs that take minutes each take hours together, if there are more
REPORTED = "Reported: change these by hand"  # the title of a section
NO_PROGRAM = (
    f"No program was found: whatever imports this code has to call {RUNTIME}.setup() first."
)

NO_FILES = (
    "nothing to look at: no Python files, notebooks, shell scripts, requirements or settings, "
    "or all are excluded (--show-settings)"
)

UNTRIED = "Imported, and not known to run without a GPU"


@dataclass(frozen=True)
class Work:
    """The constructs of a file, or of a project, by outcome."""

    outcomes: Counter[Outcome]
    upgrades: int  # of these constructs, names and calls of older versions
    left: Counter[tuple[str, Effort]]  # reported constructs, by code and effort
    suppressed: int = 0  # of those that are kept

    @property
    def reported(self) -> int:
        return self.outcomes[Outcome.REPORTED]

    @property
    def automatic(self) -> float:
        """The share of GPU constructs that need no manual work, in percent.

        What comments keep is not counted: nobody knows whether it runs.
        """
        total = self.outcomes.total() - self.suppressed
        return 100.0 * (total - self.reported) / total if total else 100.0

    @property
    def codes(self) -> Counter[str]:
        return Counter(code for code, _ in self.left.elements())

    @property
    def efforts(self) -> Counter[Effort]:
        return Counter(effort for _, effort in self.left.elements())

    @property
    def effort(self) -> Effort | None:
        """The effort of the hardest construct; None if nothing is left."""
        if not self.left:
            return None
        worst = max(self.efforts, key=list(Effort).index)
        many = worst is Effort.MINUTES and self.reported > MANY
        return Effort.HOURS if many else worst


def of_file(file: FileReport) -> Work:
    return of_files([file])


def of_project(report: Report) -> Work:
    return of_files(report.files)


def of_files(files: Iterable[FileReport]) -> Work:
    return _work(d for f in files for d in f.result.diagnostics)


def _work(diagnostics: Iterable[Diagnostic]) -> Work:
    found = [d for d in diagnostics if d.outcome is not None]
    return Work(
        Counter(d.outcome for d in found if d.outcome is not None),
        sum(d.code[:3] == UPGRADES for d in found),
        Counter((d.code, d.effort) for d in found if d.effort is not None),
        sum(d.is_suppressed for d in found),
    )


def runtimes(report: Report) -> dict[Path, tuple[int, int]]:
    """The runtimes to be written, by folder: the number of files and lines of each; or a wheel."""
    folders = {path.parent for path in report.companions}
    sizes: dict[Path, tuple[int, int]] = {}
    for path, content in sorted(report.companions.items()):
        if path.suffix == WHEEL:
            sizes[path] = 1, 0
            continue
        top = path.parent
        while top.parent in folders:
            top = top.parent
        files, lines = sizes.get(top, (0, 0))
        sizes[top] = files + 1, lines + content.count(b"\n")
    return sizes


def untried(report: Report) -> list[str]:
    """What GPU code imports of which nobody knows whether it runs elsewhere, in a line; or none."""
    modules = unknown(report.find_imports()) if by_code(report) else []
    return [f"{UNTRIED}: {', '.join(modules)}"] if modules else []


def by_effort(report: Report) -> list[tuple[Path, Work]]:
    """The files with remaining work, those with the most effort first."""
    found = [(file.path, of_file(file)) for file in report.files]
    left = [(path, work) for path, work in found if work.effort is not None]
    order = list(Effort)
    return sorted(left, key=lambda item: _rank(item[1], order), reverse=True)


def _rank(work: Work, order: list[Effort]) -> list[int]:
    assert work.effort is not None
    return [order.index(work.effort), *(work.efforts[e] for e in reversed(order))]


def by_code(report: Report) -> dict[str, Counter[Outcome]]:
    """The number of constructs that each rule rewrote, kept and reported, by code."""
    counts: dict[str, Counter[Outcome]] = {}
    for _, diagnostic in report.diagnostics(*Outcome):
        if diagnostic.outcome is not None:
            counts.setdefault(diagnostic.code, Counter())[diagnostic.outcome] += 1
    return dict(sorted(counts.items()))


def inventory(work: Work) -> str:
    """What was looked at: `3 GPU constructs and 2 upgrades`."""
    said = count_noun(work.outcomes.total() - work.upgrades, "GPU construct")
    return f"{said} and {count_noun(work.upgrades, 'upgrade')}" if work.upgrades else said


def count_noun(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
