"""A further, short run of a migrated script with the random numbers that its device draws.

All other runs draw on the CPU, so that numbers can be compared. What a device draws can be wrong by
itself: a zero where torch never draws one, whose logarithm is infinite. So this run fails on NaN
and Inf that the original hasn't. Its losses are no others than the original's with another seed:
three seeds show how far those are apart, and a loss outside of that is a note. The seeds change
where the device's first number is drawn: what the CPU draws before, such as initial weights, is the
same in all of these runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from .comparisons import Finding
from .originals import record_original
from .recordings import Recording
from .verify_errors import VerifyError

if TYPE_CHECKING:
    from .migrated_runs import MigratedRuns
    from .script_result import ScriptResult

_SEEDS = (1, 2, 3)  # added to the program's own
_WIDTHS = 2.0  # of the spread of the seeds: so far outside of them a loss may be
_KINDS = ("loss", "metric", "gradients", "output", "weights", "end", "printed")
_WHY = "it draws random numbers on the device, which the other runs draw on the CPU"


def draw_too(runs: MigratedRuns, result: ScriptResult) -> ScriptResult:
    """The result of the compared runs, and of one that draws its own random numbers, if it does."""
    if not runs.draws or not result.passed or not runs.has_operators:
        return result
    return with_own_draws(runs, result)


def with_own_draws(runs: MigratedRuns, result: ScriptResult) -> ScriptResult:
    """The result with what such a run has shown: a problem, or a note."""
    seeds = () if runs.settings.quick or runs.known is not None else _SEEDS
    short = min(1.0, runs.settings.steps / max(runs.first.steps, 1)) * runs.first.seconds
    expected = {f"seed-{more}": runs.beginning + short for more in seeds}
    runs.runs.expect({"own-draws": runs.to_step, **expected}, _WHY)
    done, run = runs.record(
        "own-draws", {}, closely=False, stop=runs.settings.steps, own_draws=(0, 0)
    )
    if run.ended and not run.was_stopped:
        text = f"the migrated script, with the device's own random numbers, fails: {run.ended}"
        return replace(result, problems=[*result.problems, text], log_tail=done.tail(20))
    if found := _not_finite(runs, result, run):
        text = f"NaN or Inf with the device's own random numbers, first in {found}"
        return replace(result, problems=[*result.problems, text])
    others = [_losses(_original(runs, more)) for more in seeds]
    note = note_on_losses(_losses(run), others)
    return replace(result, notes=[*result.notes, *([note] if note else [])])


def _original(runs: MigratedRuns, more: int) -> Recording | None:
    """The original with other seeds; None if it can't run so."""
    try:
        return record_original(
            runs.script, runs.work, runs.python, runs.settings, runs.runs, runs.options.keep,
            own_draws=(more, 0 if runs.first.ranks else runs.before),
        )  # fmt: skip
    except VerifyError:
        return None


def _not_finite(runs: MigratedRuns, result: ScriptResult, run: Recording) -> str:
    """What is NaN or Inf in a run, but not in the original; "" for nothing."""
    found = runs.compare(result, run, "compiled", _KINDS).findings
    odd = [f for f in found if _is_new(f)]
    if not odd:
        return ""
    first = min(odd, key=lambda f: f.order)
    place = f" {first.place}" if first.place else ""
    return f"{first.kind} {first.name}{place} (step {first.step + 1})"


def _is_new(finding: Finding) -> bool:
    """Whether it is NaN or Inf, and finite in the original."""
    if finding.want is not None and finding.got is not None:
        return math.isfinite(finding.want) and not math.isfinite(finding.got)
    return (finding.reason or "").endswith("NaN or Inf, only here")


def _losses(recording: Recording | None) -> list[float]:
    events = recording.events if recording is not None else []
    return [float(event["value"]) for event in events if event["kind"] == "loss"]


def note_on_losses(losses: list[float], others: Sequence[list[float]]) -> str:
    """A note if the mean loss is far outside of those of the original's seeds; "" otherwise.

    Also without any one step: where losses have a long tail, such as those of a quotient, one that
    is many times as large as the others is right.
    """
    count = min(map(len, (losses, *others)), default=0)
    if not count or len(others) < 2:
        return ""
    rows = [run[:count] for run in (losses, *others)]
    fewer = [[row[:step] + row[step + 1 :] for row in rows] for step in range(count)]
    if not all(_is_outside(*some) for some in ([rows, *fewer] if count > 1 else [rows])):
        return ""
    mean, *means = map(fmean, rows)
    return (
        f"with the device's own random numbers the loss of the first {count} steps is {mean:.4g}, "
        f"with {len(others)} seeds the original's is {min(means):.4g} to {max(means):.4g}: "
        "look at what it draws"
    )


def _is_outside(losses: list[float], *others: list[float]) -> bool:
    """Whether the mean is far outside of the others'.

    Three means can be close by chance, so how far the losses of single steps are apart counts, too.
    """
    mean, means = fmean(losses), [fmean(other) for other in others]
    low, high = min(means), max(means)
    if not all(map(math.isfinite, (mean, *means))):
        return False
    steps = [max(at) - min(at) for at in zip(*others, strict=True)]
    spread = max(high - low, fmean(steps) / math.sqrt(len(steps)))
    return max(low - mean, mean - high) > _WIDTHS * spread + 1e-3 * abs(high)
