"""The first line of a run's summary, shared by all that print it."""

from __future__ import annotations


def summary(files: int, changed: int, failed: int, seconds: float, *, written: bool) -> str:
    parts = [
        f"{files:,} file{'' if files == 1 else 's'} scanned",
        f"{changed:,} {'changed' if written else 'would change'}",
    ]
    if failed:
        parts.append(f"{failed} failed")
    return f"{', '.join(parts)}  ({seconds:.2f} s)"
