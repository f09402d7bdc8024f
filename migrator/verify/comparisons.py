"""The results of comparing two runs, value by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .safetensors_files import Difference
from .tolerances import LESS_EXACT

LAST = 10**8  # the order of values that only exist at the end


@dataclass(frozen=True)
class Finding(Difference):
    """One value or tensor that was compared."""

    kind: str  # of KINDS
    name: str
    place: str  # path in a state or an output, or the text around a printed number
    step: int
    order: int  # in the run
    line: str = ""  # of the original
    loop: str = ""  # the loop counters at that moment

    @property
    def is_odd(self) -> bool:
        """Whether it fails for another reason than its numbers: NaN, shape, dtype, or missing."""
        return self.reason is not None and (self.allowed is None or "NaN" in self.reason)

    @property
    def is_number(self) -> bool:
        """Whether it is a floating-point tensor of finite values and the right shape."""
        return self.allowed is not None and not self.is_odd


@dataclass(frozen=True)
class Comparison:
    """Everything that was compared of two runs, in the order of the golden."""

    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # of the golden, missing in the run
    surplus: list[str] = field(default_factory=list)  # of the run, missing in the golden
    losses: list[tuple[float, float]] = field(default_factory=list)  # golden, run
    partial: bool = False  # one run ended too early: compared as far as both came
    shortened: bool = False  # the run was meant to end after some steps
    growth: float = 1.0  # growth: how many times larger a rounding difference may be at the end
    lost: list[str] = field(default_factory=list)  # values that rounding alone moves that far

    @property
    def first(self) -> Finding | None:
        """The first difference."""
        failed = [f for f in self.findings if not f.passed]
        return min(failed, key=lambda f: f.order) if failed else None

    @property
    def is_cut(self) -> bool:
        """Whether the end is not compared."""
        return self.partial or self.shortened

    @property
    def is_other(self) -> bool:
        """Whether one run has something that the other lacks."""
        return bool(self.missing or self.surplus)

    @property
    def may_be_rounding(self) -> bool:
        """Whether a number exceeds its tolerance; never true for NaN or a wrong shape."""
        return any(not f.passed and not f.is_odd for f in self.findings)

    @property
    def compared(self) -> int:
        """How many values and tensors were compared, each by at least one element."""
        return sum(f.elements > 0 for f in self.findings)

    @property
    def passed(self) -> bool:
        return self.compared > 0 and not self.is_other and self.first is None


@dataclass(frozen=True)
class InFloat64:
    """What both programs did in float64.

    ``compared``: values; ``failed`` of them differ, ``first`` says which. ``times``: the error of
    float32 in the migrated program, by that in the original; NaN where nothing tells.
    """

    compared: int
    failed: int
    times: float
    first: str = ""

    @property
    def agrees(self) -> bool:
        return not self.failed

    @property
    def is_as_exact(self) -> bool:
        """Whether float32 is as exact in the migrated program as in the original."""
        return self.times <= LESS_EXACT

    @property
    def excuses(self) -> bool:
        """Whether what differs in float32 is rounding."""
        return self.agrees and self.is_as_exact

    @property
    def sentence(self) -> str:
        """What it says of the differences in float32."""
        if not self.agrees:
            return f"in float64, {self.failed} of {self.compared} values differ, too{self.first}"
        if self.is_as_exact:
            return f"rounding: in float64, all {self.compared} values agree"
        less = (
            f"float32 is {self.times:,.0f} times less exact here than in the original: is "
            "something computed in a lower precision?"
            if math.isfinite(self.times) and self.times
            else "no loss or gradient tells how exact float32 is"
        )
        return f"in float64, all {self.compared} values agree, but {less}"


def moved_by_rounding(want: float, again: Iterable[float | str]) -> float:
    """How far rounding moved a number; 0 if it is no longer a number."""
    moved = [abs(float(other) - want) for other in again]
    return max((m for m in moved if math.isfinite(m)), default=0.0)


def scalar(about: dict[str, Any], place: str, want: float, got: float, allowed: float) -> Finding:
    off = abs(got - want)
    bad = not (math.isfinite(want) and math.isfinite(got))
    ratio = math.inf if bad else off / allowed if off else 0.0
    reason = None
    if bad:
        reason = "NaN or Inf"
    elif ratio > 1:
        reason = f"off by {off:.3g}, allowed {allowed:.3g}"
    relative = off / abs(want) if want and not bad else None
    return Finding(place=place, ratio=ratio, reason=reason, want=want, got=got, max_abs=off,
                   max_rel=relative, allowed=allowed, **about)  # fmt: skip
