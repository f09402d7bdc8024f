"""A forecast as one HTML file: a roofline, memory, costs by line, advice."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from migrator.distribution import __version__
from migrator.errors import UsageError
from migrator.files import staging
from migrator.report.html import MARK, check, visible
from migrator.report.statistics import count_noun
from migrator.verify.chips import Chip
from migrator.verify.verification import folder_of

from .forecast import BASIS, Forecast, figure, gib
from .forecast_advice import memory_advice
from .roofline import Cost, StepEstimate
from .tried_tables import tables_of

__all__ = ["check", "write"]

_WIDE, _HIGH = 720, 380  # of the roofline
_LEFT, _RIGHT, _BELOW = 64, 30, 44  # its margins, for numbers
_BAR = 620  # the width of a device's memory


def write(found: Forecast, path: Path) -> None:
    """Raises UsageError where it cannot be written."""
    try:
        staging.write(path, render(found, path).encode("utf-8", "xmlcharrefreplace"))
    except OSError as error:
        raise UsageError(f"--report {path}: cannot be written: {error.strerror or error}") from None


def render(found: Forecast, path: Path) -> str:
    """The page; links to the source are relative to ``path``."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "visible": visible,
        "ms": _ms,
        "gib": gib,
        "figure": figure,
        "count": count_noun,
    }
    source = os.path.relpath(folder_of(Path(found.script)), path.absolute().parent)
    compiled = [step for step in found.steps if not step.error]
    longest = max(compiled, key=lambda step: step.bounds.seconds, default=None)
    return environment.get_template("page.html.j2").render(
        mark=MARK,
        version=__version__,
        found=found,
        chip=found.chip,
        steps=compiled,
        longest=longest,
        roofline=_Roofline(found.chip, compiled) if longest and longest.flops else None,
        exchanges=any(step.bounds.interconnect for step in compiled),
        tables=tables_of(found),
        bars=[(step, _bar(step)) for step in found.steps if step.memory and not step.error],
        refused=[(step, memory_advice(step, found.chip)) for step in found.steps if not step.fits],
        basis=BASIS,
        href=lambda line: f"{source}/{line.rpartition(':')[0]}",
    )


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else figure(1000 * seconds)


@dataclass(frozen=True)
class Point:
    """A step, or an operation of one, in the roofline."""

    x: float
    y: float
    size: float  # of the circle
    what: str
    is_step: bool


class _Roofline:
    """FLOP/s by FLOPs for a byte of HBM, both logarithmic. ``points`` are the estimate's."""

    def __init__(self, chip: Chip, steps: Iterable[StepEstimate]) -> None:
        self.peak, self.hbm = chip.peak / chip.devices, chip.hbm_bandwidth / chip.devices
        self.knee = self.peak / self.hbm
        self.width, self.height = _WIDE, _HIGH
        costs: list[tuple[StepEstimate | Cost, float, int, float | None]] = []
        for step in steps:
            costs.append((step, step.flops, step.accessed, step.estimate or step.bounds.seconds))
            costs += [(c, c.flops, c.bytes, c.seconds) for c in step.operations]
        self._found = [row for row in costs if row[1] and row[3]]
        shown = [(flops / max(1, size), flops / (s or 1)) for _, flops, size, s in self._found]
        self.left = 10 ** math.floor(math.log10(min([1.0, *(x for x, _ in shown)])))
        self.right = 10 ** math.ceil(math.log10(self.knee * 10))
        lowest = min([self.peak / 1e3, *(y for _, y in shown)])
        self.bottom, self.top = 10 ** math.floor(math.log10(lowest)), self.peak * 2

    def x(self, intensity: float) -> float:
        """What hardly touches HBM, since its data are on the chip, stands at the right edge."""
        within = min(intensity, self.right)
        share = math.log(within / self.left) / math.log(self.right / self.left)
        return _LEFT + share * (_WIDE - _LEFT - _RIGHT)

    def y(self, rate: float) -> float:
        share = math.log(rate / self.bottom) / math.log(self.top / self.bottom)
        return (_HIGH - _BELOW) * (1 - share)

    @property
    def roof(self) -> str:
        """The line that no operation can be above."""
        start = max(self.left, self.bottom / self.hbm)
        corners = [(start, start * self.hbm), (self.knee, self.peak), (self.right, self.peak)]
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in corners)

    @property
    def points(self) -> list[Point]:
        found = []
        for of, flops, size, seconds in self._found:
            intensity, rate = flops / max(1, size), flops / (seconds or 1)
            bytes_of = f"{intensity:,.3g} FLOP for a byte" if size else "all on the chip"
            what = f"{of.name}: {bytes_of}, {rate / 1e12:,.3g} TFLOP/s, {_ms(seconds)} ms"
            radius = 8.0 if isinstance(of, StepEstimate) else 4.0
            found.append(
                Point(self.x(intensity), self.y(rate), radius, what, isinstance(of, StepEstimate))
            )
        return found

    def ticks(self, low: float, high: float) -> list[float]:
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        return [10.0**power for power in range(first, last + 1)]


def _bar(step: StepEstimate) -> dict[str, Any]:
    """The parts of a step's memory, beside what a device has."""
    whole = max(step.capacity, step.hbm)
    at, parts = 0.0, []
    for name, size in step.shown.items():
        width = _BAR * size / whole
        parts.append((name, size, at, width))
        at += width
    return {"parts": parts, "width": _BAR, "limit": _BAR * step.capacity / whole}
