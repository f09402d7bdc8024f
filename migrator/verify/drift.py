"""How rounding differences grow in a program: from step to step, and for each parameter."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any

from .comparisons import moved_by_rounding
from .tolerances import (
    FEW,
    GROWN,
    OWN_NORM,
    ROUNDED,
    SMALL_LOSS,
    ULP,
    Tolerances,
)

Events = dict[tuple[str, str, int], dict[str, Any]]  # by kind, name and number


def growth_by_step(wanted: Events, rounded: Sequence[Events], last: int) -> list[float]:
    """The factor by which a rounding difference may have grown before each step: `GROWN` times the
    largest growth in one of the runs with different rounding.

    Growth is the largest difference at a step, divided by that at an earlier step. Differences of
    losses are relative to the loss, those of gradient norms to the norm of all gradients. At any
    step two back ends may differ by a unit more than these runs, at a ReLU or between two maxima.
    """
    found = [1.0] * (last + 1)
    for events in rounded:
        moved = [ULP] * (last + 1)
        for key, event in events.items():
            if key not in wanted or event["step"] > last:
                continue
            want, size = wanted[key], 0.0
            if event["kind"] == "loss":
                value = float(want["value"])
                size = moved_by_rounding(value, [event["value"]]) / max(abs(value), SMALL_LOSS)
            elif event["kind"] == "gradients":
                norms = {name: float(norm) for name, norm in want["norms"].items()}
                others = {name: [event["norms"].get(name, n)] for name, n in norms.items()}
                apart = [moved_by_rounding(n, others[name]) for name, n in norms.items()]
                size = max(apart, default=0.0) / (norm_of_all(norms) or 1.0)
            if math.isfinite(size):
                moved[event["step"]] = max(moved[event["step"]], size)
        for step in range(1, last + 1):
            found[step] = max(found[step], moved[step] / min(moved[:step]))
    return [1.0, *(GROWN * grown for grown in accumulate(found[1:], max))]


def unit_of_norm(unit: float, norm: float, whole: float) -> float:
    """The tolerance for the norm of a gradient, apart from the effect of rounding."""
    return unit * max(OWN_NORM * norm, whole)


@dataclass(frozen=True)
class Gain:
    """For a weight: ``times`` the effect of rounding is allowed, and for the share ``few`` of its
    elements a step in the other direction; of all, if its gradient may be nothing but rounding.

    ``follows``: for a running mean, the first states of such weights: it is of what one of them, a
    bias before BatchNorm, is added to.
    """

    times: float = ROUNDED
    few: float = FEW
    follows: tuple[str, ...] = ()

    def __or__(self, other: Gain) -> Gain:
        return replace(self, times=max(self.times, other.times), few=max(self.few, other.few))


USUAL = Gain()


@dataclass
class Gains:
    """What is allowed for each weight, after each step of its optimizer.

    A gradient may differ by its unit, which is more than rounding moved it. The optimizer amplifies
    that difference as it amplified rounding: little for SGD, a lot for Adam, which divides by the
    size of the gradient. It turns the steps of elements whose gradient is smaller than the unit.
    """

    steps: dict[str, list[tuple[int, Gain]]] = field(default_factory=lambda: defaultdict(list))
    unknown: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def of(self, name: str, step: int, started: Mapping[tuple[str, str], str]) -> Gain:
        """After the given number of steps. ``started``: first states, by model and path."""
        found = self.until(name, step)
        if not name.endswith("running_mean"):
            return found
        if step not in self.unknown:
            turned = [(n, p) for n, p in started if self.until(f"{n}.{p}", step).few >= 1]
            self.unknown[step] = tuple(started[place] for place in turned)
        return replace(found, follows=self.unknown[step])

    def until(self, name: str, step: int) -> Gain:
        """After the given number of optimizer steps."""
        return reduce(or_, (gain for at, gain in self.steps.get(name, ()) if at < step), USUAL)

    def of_file(self, path: str, step: int, started: Mapping[tuple[str, str], str]) -> Gain:
        """For a tensor in a file, if it has the name of a parameter."""
        names = [n for n in self.steps if n.endswith(f".{path}") or n.partition(".")[2] == path]
        inner = [n for n in self.steps if path.endswith("." + n.partition(".")[2])]
        first = self.of(path, step, started)
        return reduce(or_, (self.until(name, step) for name in names or inner), first)


def gains_of(
    wanted: Events, rounded: Sequence[Events], grown: Sequence[float], tolerances: Tolerances
) -> Gains:
    found = Gains()
    for key, event in wanted.items():
        if event["kind"] != "gradients":
            continue
        norms = {name: float(norm) for name, norm in event["norms"].items()}
        whole = norm_of_all(norms)
        for name, norm in norms.items():
            again = [events[key]["norms"].get(name, norm) for events in rounded if key in events]
            unit = tolerances.units[event.get("dtypes", {}).get(name, "F32")]
            allowed = grown[event["step"]] * unit_of_norm(unit, norm, whole)
            moved = max(moved_by_rounding(norm, again), ULP * norm)
            if again and moved:
                few = min(unit * whole / norm, 1.0) if norm else 1.0
                gain = Gain(max(ROUNDED, allowed / moved), max(FEW, few))
                found.steps[name].append((event["step"], gain))
    return found


def norm_of_all(norms: Mapping[str, float]) -> float:
    """The norm of all gradients."""
    return math.sqrt(sum(n * n for n in norms.values() if math.isfinite(n)))
