"""The result of `verify` for a script, as a part of the page: rows, and a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Row:
    """Values of one kind in one run, as text."""

    what: str
    run: str
    number: str
    largest: str
    share: str
    short: str  # pass, or FAIL and the number of failures
    state: str  # and the first failure
    passed: bool


@dataclass(frozen=True)
class Chart:
    """Points of lines, for SVG: both runs' losses, and their difference."""

    WIDTH: ClassVar = 720  # in units of the picture
    HEIGHT: ClassVar = 180
    LOWER: ClassVar = 60  # the height of its lower part
    golden: str
    here: str
    apart: str
    high: str
    low: str
    most: str
    count: int
    first: str  # of the run here
    last: str


@dataclass(frozen=True)
class LayerNumbers:
    """A module of a model: how far each kind of its values is from its bound."""

    name: str
    parts: Sequence[tuple[str, str, bool]]  # what, its share of what is allowed, whether it passed
    mark: str  # of the first beyond its bound; "": it isn't that
    children: Sequence[LayerNumbers]

    @property
    def passed(self) -> bool:
        """Whether it and all inside of it are within their bounds."""
        own = all(passed for _, _, passed in self.parts)
        return own and all(child.passed for child in self.children)


@dataclass(frozen=True)
class PageNumbers:
    """The verdict in one line, its basis, and where the runs diverge."""

    verdict: str
    passed: bool
    rows: Sequence[Row]
    losses: Sequence[tuple[float, float]]  # golden, here
    parting: Sequence[str]
    notes: Sequence[str]
    allowed: str  # what that is
    layers: Sequence[LayerNumbers] = ()  # the models, with --layers

    @property
    def chart(self) -> Chart | None:
        """None if there are too few losses for a line."""
        finite = [value for pair in self.losses for value in pair if math.isfinite(value)]
        if len(self.losses) < 3 or not finite:
            return None
        low, high = min(finite), max(finite)
        apart = [abs(here - golden) for golden, here in self.losses]
        most = max((a for a in apart if math.isfinite(a)), default=0.0)
        return Chart(
            _points([golden for golden, _ in self.losses], low, high, Chart.HEIGHT),
            _points([here for _, here in self.losses], low, high, Chart.HEIGHT),
            _points(apart, 0.0, most, Chart.LOWER),
            f"{high:.4g}", f"{low:.4g}", f"{most:.3g}", len(self.losses),
            f"{self.losses[0][1]:.4g}", f"{self.losses[-1][1]:.4g}",
        )  # fmt: skip


def _points(values: Sequence[float], low: float, high: float, height: int) -> str:
    """Leave out values that aren't finite."""
    span = (high - low) or 1.0
    across = Chart.WIDTH / (len(values) - 1)
    return " ".join(
        f"{number * across:.1f},{height * (high - value) / span:.1f}"
        for number, value in enumerate(values)
        if math.isfinite(value)
    )
