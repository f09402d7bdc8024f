"""All figures for how far two runs of one program may differ. See docs/tolerances.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .verify_errors import VerifyError

# Of the largest magnitude in a tensor: what sums in another order, through some layers, come to.
# float16 becomes bfloat16 on a TPU. Chosen; how far they hold is in docs/tolerances.md.
UNITS: Mapping[str, float] = {"F64": 1e-6, "F32": 1e-5, "F16": 2**-6, "BF16": 2**-6}
LESS_EXACT = 64.0  # times the original's error in float32: other sums; TF32 would be 2^13 times
IN_FLOAT64 = 1e-9  # of float64, if both programs compute in it (--float64)
TF32 = 2**-9  # of float32, in a GPU golden with TensorFloat32 products
ROUNDED = 8.0  # times the effect of different rounding on the original
FEW = 5e-3  # the share of weights in a tensor that may differ by more, such as a whole step
ONE_OF = 0.12  # if that is this many elements or more, at least one may
MOVED = 0.05  # of how far a weight moved since the start (root mean square)
GROWN = 4.0  # times the measured growth
LOST = 0.4  # of a magnitude: if rounding may grow to this, later weights mean nothing
ULP = 2.0**-23  # one unit in the last place of float32
SMALL_LOSS = 1e-3  # losses below this use its unit
OWN_NORM = 10.0  # units of a parameter's own gradient norm, or else of the norm of all
DECIDED = 0.02  # for a printed share of decisions, such as an accuracy, or for their number
ONE_OF_DECISIONS = 4096  # at least one, of this many that a model makes
PRINTED = 1.01  # units in the last printed place
KINDS = (
    "start", "input", "output", "loss", "metric", "gradients", "buffers", "weights", "end", "file",
    "printed",
)  # fmt: skip

# What optimizers keep of each gradient.
_SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum")
_OF_AN_OPTIMIZER = re.compile(
    r"(?P<whose>(?:.*\.)?state\.)\d+\."
    rf"(?P<what>exp_avg|exp_inf|momentum_buffer|grad_avg|acc_delta|{'|'.join(_SQUARES)})"
)


@dataclass(frozen=True)
class Tolerances:
    """``factors``: by kind of value, what its tolerance is multiplied by; "" for all others."""

    factors: Mapping[str, float] = field(default_factory=dict)
    tf32: bool = False
    float64: bool = False

    def factor(self, kind: str) -> float:
        """The factor for the tolerance of a kind."""
        return self.factors.get(kind, self.factors.get("", 1.0))

    @property
    def units(self) -> dict[str, float]:
        """The unit of each dtype."""
        if self.float64:
            return {**UNITS, "F64": IN_FLOAT64}
        return {**UNITS, "F32": TF32} if self.tf32 else dict(UNITS)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Tolerances:
        """Parse `FACTOR` and `KIND=FACTOR`. Raises VerifyError for anything else."""
        factors = {}
        for text in texts:
            kind, equals, number = text.rpartition("=")
            try:
                factor = float(number)
            except ValueError:
                factor = 0.0
            if not 0 < factor < float("inf") or (equals and kind not in KINDS):
                kinds = ", ".join(KINDS)
                raise VerifyError(
                    f"--tolerance {text}: give FACTOR or KIND=FACTOR, above 0; kinds: {kinds}"
                )
            factors[kind] = factor
        return cls(factors)


def judged_with_others(file: str, path: str) -> dict[str, Any]:
    """Of a tensor in a checkpoint: the settings by which what an optimizer keeps of one gradient,
    which may be zero except for rounding, is judged by the largest that it keeps of any."""
    state = _OF_AN_OPTIMIZER.fullmatch(path)
    if state is None:
        return {}
    among = f"{file}: {state['whose']}{state['what']}"
    return {"among": among, "squares": state["what"] in _SQUARES}
