"""The smallest slice that a script fits on: each number of chips, with each way to divide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migrator.errors import UsageError
from migrator.verify.chips import Chip

from .forecast import Forecast
from .ways import Way, needs_of, without_forecast

SHARDINGS = ("fsdp", "tp", "tp-row")


@dataclass(frozen=True)
class SliceTrial:
    """A forecast for one slice. Bytes are of one device; seconds of all its steps together."""

    chips: int
    shard: str | None
    fits: bool
    hbm: int
    capacity: int
    bound: float | None  # None where there is no forecast, or a step is refused
    bfloat16: float | None  # the bound with float32 products in bfloat16
    error: str | None = None
    recompute: bool = False  # activations


Make = Callable[[int, Way], Forecast]  # of a number of chips


def find_smallest(chip: Chip, make: Make) -> tuple[Forecast, list[SliceTrial]]:
    """The forecast of the smallest slice on which all steps fit, and all trials.

    Recomputation is tried on one chip, and where it does not fit without. Of equally many chips,
    the one with the least bound is taken; where nothing fits, the forecast of one chip. Raises
    UsageError: there is no forecast for one chip.
    """
    found: list[tuple[Forecast, SliceTrial]] = []
    for count in sorted(chip.topologies):
        for shard in (None,) if count == 1 else SHARDINGS:
            for recompute in (False, True):
                way = Way(shard, recompute)
                made = make(count, way)
                if not found and made.error is not None:
                    raise UsageError(made.error)
                trial = _trial(count, way, made)
                found.append((made, trial))
                if not trial.hbm or (trial.fits and count > 1):
                    break
    fitting = [pair for pair in found if pair[1].fits]
    best = min(fitting, key=lambda pair: (pair[1].chips, pair[1].bound or 0), default=found[0])
    return best[0], [trial for _, trial in found]


def _trial(count: int, way: Way, made: Forecast) -> SliceTrial:
    needs = needs_of(made)
    is_divided = count == 1 or any(step.devices != 1 for step in made.steps)
    if made.error is None and made.steps and not is_divided:
        needs = without_forecast("its steps use one device: nothing is divided")
    known = needs["bound"] is not None
    narrow = sum(step.bfloat16.seconds for step in made.steps) if known else None
    return SliceTrial(
        chips=count, shard=way.shard, recompute=way.recompute, bfloat16=narrow, **needs
    )
