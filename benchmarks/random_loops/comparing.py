"""Whether two runs of a program print and hold the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

State = dict[str, Any]
TOLERANCE = 1e-9  # of float64, relative to a tensor's largest number, or to 1
_ROUNDING = {"float32": 1e-6}  # of what a program computes in other types, like an accuracy
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?inf|nan")


@dataclass
class Run:
    """What a run of a program has printed, and held after each of its rounds and at the end."""

    printed: str = ""
    rounds: list[State] = field(default_factory=list)
    end: State | None = None
    error: str = ""  # with which it has stopped
    passes: list[int] = field(default_factory=list)  # backward passes of each round
    held: list[int] = field(default_factory=list)  # held programs that each round has run
    compiled: list[int] = field(default_factory=list)  # programs that each round has compiled
    seconds: float = 0.0


def difference(found: Run, expected: Run, tolerance: float = TOLERANCE) -> str:
    """The first thing in which they differ, in a line; nothing if they are the same.

    A run that was only looked at when it ended is only compared there.
    """
    for number, (mine, theirs) in enumerate(zip(found.rounds, expected.rounds, strict=False)):
        for what in _differing(mine, theirs, tolerance):
            return f"after round {number}: {what}"
    if found.rounds and len(found.rounds) != len(expected.rounds):
        return f"{len(found.rounds)} rounds, not {len(expected.rounds)}"
    if found.end is not None and expected.end is not None:
        for what in _differing(found.end, expected.end, tolerance):
            return f"at the end: {what}"
    return _printed_otherwise(found.printed, expected.printed, tolerance)


def _differing(found: State, expected: State, tolerance: float) -> Iterator[str]:
    for place, value in expected.items():
        if place not in found:
            yield f"{place} is missing"
        elif not _same(found[place], value, tolerance):
            yield f"{place} is {_shown(found[place], value)}"
    for place in found:
        if place not in expected:
            yield f"{place} should not be there"


def _same(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, np.ndarray):
        if not isinstance(found, np.ndarray):
            return False
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return False
        if expected.dtype.kind != "f":
            return bool(np.array_equal(found, expected))
        return _close(found, expected, max(tolerance, _ROUNDING.get(expected.dtype.name, 0)))
    if isinstance(expected, float) and isinstance(found, float):
        return _close(np.asarray(found), np.asarray(expected), tolerance)
    return bool(type(found) is type(expected) and found == expected)


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    numbers = expected[np.isfinite(expected)]
    largest = np.abs(numbers).max() if numbers.size else 0.0
    bound = tolerance * max(1.0, float(largest))
    return bool(np.allclose(found, expected, rtol=0, atol=bound, equal_nan=True))


def _printed_otherwise(found: str, expected: str, tolerance: float) -> str:
    mine, theirs = found.splitlines(), expected.splitlines()
    for number, (line, right) in enumerate(zip(mine, theirs, strict=False)):
        if not _same_line(line, right, tolerance):
            return f"line {number + 1} of the output is {line!r}, not {right!r}"
    if len(mine) != len(theirs):
        return f"{len(mine)} lines of output, not {len(theirs)}"
    return ""


def _same_line(found: str, expected: str, tolerance: float) -> bool:
    """Numbers may differ in the last digit that is written, or by rounding."""
    if _NUMBER.sub("#", found) != _NUMBER.sub("#", expected):
        return False
    for mine, right in zip(_NUMBER.findall(found), _NUMBER.findall(expected), strict=True):
        a, b = float(mine), float(right)
        digits = len(right.partition(".")[2].partition("e")[0])
        exact = "." not in right and "." not in mine
        bound = (
            0 if exact else max(tolerance * max(1, abs(b)), 1.01 * 10.0**-digits * (digits < 13))
        )
        if not (a == b or abs(a - b) <= bound or (a != a and b != b)):
            return False
    return True


def _shown(found: Any, expected: Any) -> str:
    """The two values; of arrays the elements that differ most."""
    if isinstance(found, np.ndarray) and isinstance(expected, np.ndarray):
        forms = [f"{value.dtype}{list(value.shape)}" for value in (found, expected)]
        if forms[0] != forms[1] or not found.size:
            return f"{forms[0]}, not {forms[1]}"
        apart = np.abs(np.nan_to_num(found.astype(float)) - np.nan_to_num(expected.astype(float)))
        at = np.unravel_index(apart.argmax(), apart.shape)
        where = f" at {tuple(map(int, at))}" if at else ""
        return f"{found[at]!r}{where} of {forms[0]}, not {expected[at]!r}"
    return f"{found!r}, not {expected!r}"
