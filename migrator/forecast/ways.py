"""Ways to compile the same program: what `tpu-migrate` and the runtime change without an edit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .forecast import Forecast


@dataclass(frozen=True)
class Way:
    """``recompute``: activations of repeated blocks are computed again in the backward pass."""

    shard: str | None = None
    recompute: bool = False
    precision: str | None = None  # of float32 products

    @property
    def options(self) -> dict[str, Any]:
        """As `forecast` takes them."""
        return {
            "shard": self.shard,
            "unsafe": self.shard == "fsdp",
            "recompute": self.recompute,
            "precision": self.precision,
        }


@dataclass(frozen=True)
class ChangeTrial:
    """A forecast with a change. Bytes of the step that needs most; seconds of all steps."""

    change: str
    edit: str
    fits: bool
    hbm: int
    capacity: int
    bound: float | None  # None where a step is refused
    estimate: float | None
    error: str | None = None


Make = Callable[[Way], Forecast]
_CHANGES = (
    ("recomputation", "torch.utils.checkpoint around each block, or TPU_RUNTIME_RECOMPUTE=on",
     Way(recompute=True)),
    ("precision high", "migrate with --precision high; the numbers change", Way(precision="high")),
    ("precision default", "migrate with --precision default; the numbers change",
     Way(precision="default")),
)  # fmt: skip


def try_changes(make: Make) -> tuple[Forecast, list[ChangeTrial]]:
    """The forecast as it is, and the trials of all changes, compiled; the first is none of them."""
    plain = make(Way())
    trials = [_trial("as it is", "", plain)]
    if plain.error is None:
        trials += [_trial(change, edit, make(way)) for change, edit, way in _CHANGES]
    return plain, trials


def _trial(change: str, edit: str, made: Forecast) -> ChangeTrial:
    needs = needs_of(made)
    estimates = [step.estimate for step in made.steps]
    known = needs["bound"] is not None and None not in estimates
    estimate = sum(s or 0.0 for s in estimates) if known else None
    return ChangeTrial(change=change, edit=edit, estimate=estimate, **needs)


def needs_of(made: Forecast) -> dict[str, Any]:
    """What trials say of a forecast: ``fits``, ``hbm`` and ``capacity`` of the step that needs
    most, the ``bound`` of all, and the ``error`` for which it has none."""
    if made.error is not None or not made.steps:
        why = made.error or "; ".join(made.problems) or "no step was compiled"
        return without_forecast(why)
    most = max(made.steps, key=lambda step: step.hbm)
    refused = next((step.error for step in made.steps if step.error), None)
    return {
        "fits": all(step.fits for step in made.steps),
        "hbm": most.hbm,
        "capacity": most.capacity,
        "bound": None if refused else sum(step.bounds.seconds for step in made.steps),
        "error": refused,
    }


def without_forecast(why: str) -> dict[str, Any]:
    """As `needs_of`."""
    return {"fits": False, "hbm": 0, "capacity": 0, "bound": None, "error": why}
