"""The result of a verification, from which the console table and the JSON are made."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .product_precision import PrecisionReport
from .safetensors_files import Difference
from .tpu import TpuReport


def finite(value: Any) -> Any:
    """The same for JSON, which has no NaN and Inf: they become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


@dataclass(frozen=True)
class Tolerance:
    """An element agrees if |got - want| <= atol + rtol * |want|.

    ``max_mismatch`` is the fraction of elements that may disagree; ``nonfinite`` allows NaN and
    Inf where the golden has the same at the same place; ``any_width`` compares signed integers by
    value, however many bits they are stored in.
    """

    atol: float = 0.0
    rtol: float = 0.0
    max_mismatch: float = 0.0
    nonfinite: bool = False
    any_width: bool = False
    reason: str = ""

    def __str__(self) -> str:
        parts = [f"{self.atol:.3g}"] if self.atol or not self.rtol else []
        parts += [f"{self.rtol:.3g}·|x|"] if self.rtol else []
        text = "exact" if parts == ["0"] else " + ".join(parts)
        return f"{text}, but {self.max_mismatch:.2g} of all" if self.max_mismatch else text


@dataclass(frozen=True)
class OutputResult(Difference):
    """One output compared with the golden."""

    name: str
    tolerance: Tolerance | None = None


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step: its first run (which compiles) and the mean of the later ones."""

    name: str
    first: float | None
    later: float | None
    golden_first: float | None = None
    golden_later: float | None = None


@dataclass(frozen=True)
class Figure:
    """A number that the app reports about its run, and that of the golden's run."""

    name: str
    here: float | None
    golden: float | None = None


@dataclass(frozen=True)
class Measure:
    """A measurement, its limit, and whether it is met (None: no limit)."""

    what: str
    here: str
    beside: str = ""
    passed: bool | None = None


@dataclass(frozen=True)
class VerifyResult:
    """``error``: nothing could be verified; ``problems``: something disagreed."""

    app: str
    target: str
    error: str | None = None
    device: str | None = None  # where the migrated script ran
    python: Path | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    times: list[StepTime] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    golden_device: str | None = None  # None: a script without a golden
    seconds: float | None = None  # the whole run of the migrated script
    precision: PrecisionReport | None = None
    tpu: TpuReport | None = None  # programs compiled for a TPU, if requested
    compiled: str | None = None  # programs and steps, counted by the runtime; one item a line
    in_parts: list[str] = field(default_factory=list)  # steps and modules not compiled as a whole
    log_tail: str | None = None  # if a script failed
    kept: Path | None = None

    @property
    def name(self) -> str:
        return self.app

    @property
    def compared(self) -> int:
        """How many outputs were compared, each by at least one element."""
        return sum(output.elements > 0 for output in self.outputs)

    @property
    def passed(self) -> bool:
        return (
            self.error is None
            and not self.problems
            and (self.compared > 0 or self.golden_device is None)
            and all(output.passed for output in self.outputs)
        )

    @property
    def exit_code(self) -> int:
        """0 all passed, and something was compared if there is a golden; 1 not so; 2 nothing
        could be verified."""
        if self.error is not None:
            return 2
        return 0 if self.passed else 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON; all times are in seconds."""
        fields = asdict(self)
        for output, row in zip(self.outputs, fields["outputs"], strict=True):
            row["passed"] = output.passed
        for name in ("python", "kept"):
            fields[name] = str(fields[name]) if fields[name] else None
        found: dict[str, Any] = finite(
            {**fields, "passed": self.passed, "exit_code": self.exit_code}
        )
        return found
