"""The result of verifying a script."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from migrator.runs.run_report import Report

from .bisection import Bisection
from .comparisons import Comparison, Finding, InFloat64
from .layer_tree import Layers
from .tolerances import Tolerances
from .verify_result import finite


@dataclass(frozen=True)
class ScriptResult:
    """``compiled``: the run as it will run against the golden, where it is compiled as a whole;
    ``stepwise``: operator by operator."""

    script: str
    target: str
    error: str | None = None  # nothing could be verified
    device: str = ""
    golden_device: str = ""
    stepwise: Comparison = field(default_factory=Comparison)
    compiled: Comparison = field(default_factory=Comparison)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    log_tail: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # of each run, by its name
    tolerances: Tolerances = field(default_factory=Tolerances)
    quick: bool = False
    float64: InFloat64 | None = None  # what differs, in float64: if rounding may have made it
    kept: Path | None = None
    bisection: Bisection | None = None
    layers: Layers | None = None  # if they were asked for
    migration: Report | None = None  # the migration

    @property
    def name(self) -> str:
        return self.script

    @property
    def compared(self) -> int:
        return self.stepwise.compared + self.compiled.compared

    @property
    def losses(self) -> list[tuple[float, float]]:
        """Of the golden and of the run."""
        return self.stepwise.losses or self.compiled.losses

    @property
    def first(self) -> Finding | None:
        """The first difference: operator by operator, if there was such a run."""
        return self.stepwise.first or self.compiled.first

    @property
    def partial(self) -> bool:
        """Whether the comparison ends before both runs do."""
        return self.stepwise.partial or self.compiled.partial

    @property
    def passed(self) -> bool:
        parts = (self.stepwise, self.compiled)
        differs = any(p.first is not None for p in parts) and not self.is_rounding
        wrong = differs or any(p.is_other for p in parts)
        return self.error is None and not self.problems and self.compared > 0 and not wrong

    @property
    def is_rounding(self) -> bool:
        """Whether the differences are rounding, by what float64 says."""
        return self.float64 is not None and self.float64.excuses

    def to_dict(self) -> dict[str, Any]:
        """As JSON; all times are in seconds. NaN and Inf become text."""
        fields = asdict(replace(self, migration=None, layers=None))
        fields["layers"] = self.layers.to_dict() if self.layers else None
        del fields["migration"]
        fields["kept"] = str(self.kept) if self.kept else None
        fields["first"] = asdict(self.first) if self.first else None
        more = {"passed": self.passed, "partial": self.partial, "exit_code": self.exit_code}
        found: dict[str, Any] = finite({**fields, **more})
        return found

    @property
    def exit_code(self) -> int:
        if self.error is not None:
            return 2
        return 0 if self.passed else 1
