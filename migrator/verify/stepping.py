"""Checks that optimizers step as often as in the original, counted between losses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

from .comparisons import Finding

_OFTEN = {0: "not at all", 1: "once", 2: "twice"}


class _StepEvent(NamedTuple):
    """A loss, or an optimizer step, with its position among all events."""

    order: int
    seen: Mapping[str, Any]

    @property
    def is_step(self) -> bool:
        return bool(self.seen["kind"] == "gradients")


def counted_otherwise(
    golden: Sequence[Mapping[str, Any]], run: Sequence[Mapping[str, Any]], cut: bool
) -> Iterator[Finding]:
    """For each rank, the first place where the run steps more or less often between two losses.

    ``cut``: one run ended earlier, so missing events may just not have been reached.
    """
    ours = _by_rank(run)
    for rank, theirs in _by_rank(golden).items():
        place = _parting(theirs, ours[rank], cut)
        if place is not None:
            yield _finding(theirs, ours[rank], place)


def _by_rank(events: Sequence[Mapping[str, Any]]) -> defaultdict[str, list[_StepEvent]]:
    found = defaultdict(list)
    for order, event in enumerate(events):
        if event["kind"] in ("loss", "gradients"):
            found[event["name"].rpartition(": ")[0]].append(_StepEvent(order, event))
    return found


def _parting(golden: list[_StepEvent], run: list[_StepEvent], cut: bool) -> int | None:
    """The first place where only one run steps; None if losses differ, as with a line search."""
    (steps, losses), (own_steps, own_losses) = _numbers(golden), _numbers(run)
    if not cut and steps == own_steps and losses != own_losses:
        return None
    for place, (want, got) in enumerate(zip_longest(golden, run)):
        if cut and (want is None or got is None):
            return None
        if (want is not None and want.is_step) != (got is not None and got.is_step):
            return place
    return None


def _numbers(events: list[_StepEvent]) -> tuple[int, int]:
    """The number of steps and losses."""
    steps = sum(event.is_step for event in events)
    return steps, len(events) - steps


def _finding(golden: list[_StepEvent], run: list[_StepEvent], place: int) -> Finding:
    more = place < len(run) and run[place].is_step
    at = golden[max(place - 1, 0) if more else place]
    want, got = _steps_around(golden, place), _steps_around(run, place)
    until = "the end" if all(event.is_step for event in golden[place:]) else "the next loss"
    reason = f"steps {_often(got)} before {until}, {_often(want)} in the original"
    if more and (line := run[place].seen["line"]):
        reason += f" (again at {line} of the migrated script)"
    name = (run if more else golden)[place].seen["name"]
    return Finding(
        kind="steps", name=name, place="", step=at.seen["step"], order=at.order,
        line=at.seen["line"], loop=at.seen.get("loop", ""), ratio=math.inf, reason=reason,
    )  # fmt: skip


def _steps_around(events: list[_StepEvent], place: int) -> int:
    """The number of steps between the losses on both sides of a place."""
    before = takewhile(lambda event: event.is_step, reversed(events[:place]))
    behind = takewhile(lambda event: event.is_step, events[place:])
    return sum(1 for _ in before) + sum(1 for _ in behind)


def _often(number: int) -> str:
    return _OFTEN.get(number, f"{number} times")
