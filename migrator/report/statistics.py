"""Counts by rule."""

from __future__ import annotations

from collections import Counter

from migrator.diagnostics import Outcome
from migrator.run import Report


def by_code(report: Report) -> dict[str, Counter[Outcome]]:
    """How many constructs each rule rewrote, kept and reported, by code."""
    counts: dict[str, Counter[Outcome]] = {}
    for _, diagnostic in report.diagnostics(*Outcome):
        if diagnostic.outcome is not None:
            counts.setdefault(diagnostic.code, Counter())[diagnostic.outcome] += 1
    return dict(sorted(counts.items()))


def automatic(report: Report) -> float:
    """The share of GPU constructs that need no person, in percent."""
    total = sum(report.count(outcome) for outcome in Outcome)
    return 100.0 * (total - report.count(Outcome.REPORTED)) / total if total else 100.0
