"""What `tpu-migrate forecast` says of a compiled program, for a measurement."""

from __future__ import annotations

from migrator.forecast.hlo import parse
from migrator.forecast.operation_costs import operations
from migrator.forecast.roofline import bounds_of, exposed_of, timed
from migrator.verify.chips import Chip, chip_of

# Seconds that add up over the layers of a model.
SUMS = ("matrix", "hbm_seconds", "interconnect", "estimate", "exposed")


def figures(text: str, chip: Chip | str) -> dict[str, float]:
    """Seconds of each part of one device, and of the whole, by the compiled text.

    ``chip``: of a slice, or the slice's name.
    """
    chip = chip_of(chip) if isinstance(chip, str) else chip
    found = operations(parse(text))
    bounds, steps = bounds_of(found, chip), timed(found, chip)
    parts = (bounds.matrix, bounds.hbm, bounds.interconnect)
    whole = sum(seconds for _, seconds in steps), exposed_of(steps)
    return dict(zip(SUMS, (*parts, *whole), strict=True))
