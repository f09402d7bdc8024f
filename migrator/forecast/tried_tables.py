"""What was tried for a forecast, as tables: values of an option, changes, slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .forecast import Forecast, figure, gib
from .smallest_slice import SliceTrial
from .ways import ChangeTrial


@dataclass(frozen=True)
class TriedTable:
    """The first ``words`` columns are of words, the others of figures; ``lines`` follow it."""

    title: str
    caption: str
    headings: list[str]
    words: int
    rows: list[list[str]]
    lines: list[str] = field(default_factory=list)


def tables_of(found: Forecast) -> Iterator[TriedTable]:
    if found.trials:
        yield _values(found)
    if found.changes:
        yield _changes(found)
    if found.slices:
        yield _slices(found)


def _values(found: Forecast) -> TriedTable:
    rows = []
    for trial in found.trials:
        one = None if trial.bound is None else trial.bound / trial.value
        rows.append([
            f"{trial.value:,}", gib(trial.hbm), gib(trial.capacity), _fits(trial.fits),
            _ms(trial.bound), _ms(one),
        ])  # fmt: skip
    return TriedTable(
        "The largest that fits", "HBM in GiB, of the step that needs most",
        [found.largest or "", "needs", "of", "fits", "bound, ms", "ms for one"], 0, rows,
    )  # fmt: skip


def _changes(found: Forecast) -> TriedTable:
    return TriedTable(
        "What changes gain",
        "compiled again with each change. HBM in GiB, of the step that needs most; ms of all steps",
        ["change", "needs", "of", "fits", "bound, ms", "estimate, ms"], 1,
        [[each.change, *_needs(each, each.estimate)] for each in found.changes],
        [f"{e.change}: {e.error or e.edit}" for e in found.changes if e.error or e.edit],
    )  # fmt: skip


def _slices(found: Forecast) -> TriedTable:
    rows = [
        [
            f"{found.chip.name}-{each.chips}", each.shard or "-", "yes" if each.recompute else "no",
            *_needs(each, each.bfloat16),
        ]
        for each in found.slices
    ]  # fmt: skip
    errors = [f"{_slice(found, each)}: {each.error}" for each in found.slices if each.error]
    return TriedTable(
        "The smallest slice", "HBM in GiB, of the step that needs most; bounds of all steps",
        ["slice", "--shard", "recomputed", "needs", "of", "fits", "bound, ms", "in bfloat16"], 3,
        rows, [*errors, _smallest(found)],
    )  # fmt: skip


def _needs(tried: SliceTrial | ChangeTrial, seconds: float | None) -> list[str]:
    """Memory, whether it fits, the bound, and other seconds."""
    memory = (gib(size) if tried.hbm else "-" for size in (tried.hbm, tried.capacity))
    return [*memory, _fits(tried.fits), _ms(tried.bound), _ms(seconds)]


def _fits(fits: bool) -> str:
    return "yes" if fits else "no"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else figure(1000 * seconds)


def _smallest(found: Forecast) -> str:
    fitting = [each for each in found.slices if each.fits]
    if not fitting:
        return "no slice of this chip that the compiler knows fits"
    best = min(fitting, key=lambda each: (each.chips, each.bound))
    return f"the smallest that fits: {_slice(found, best)}; the figures of steps are its"


def _slice(found: Forecast, tried: SliceTrial) -> str:
    divided = f" with --shard {tried.shard}" if tried.shard else ""
    again = ", activations computed again" if tried.recompute else ""
    return f"{found.chip.name}-{tried.chips}{divided}{again}"
