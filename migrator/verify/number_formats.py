"""Formats for numbers in tables, and notes."""

import math
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text


def number(value: float | None) -> str:
    """With three digits."""
    return "-" if value is None else f"{value:.3g}"


def largest(values: Iterable[float | None]) -> str:
    """The largest of the known values."""
    return number(max((v for v in values if v is not None), default=None))


def share(ratios: Iterable[float]) -> str:
    """The largest difference as a share of the tolerance."""
    most = max(ratios, default=None)
    if most is None:
        return "-"
    return "∞" if math.isinf(most) else f"{100 * most:.3g} %"


def show_notes(notes: Iterable[str], console: Console) -> None:
    """A line each."""
    for note in notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)
