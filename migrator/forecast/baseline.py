"""Compares a forecast with an earlier one, for CI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from migrator.errors import UsageError

from .forecast import Forecast

SLOWER = 1.1  # times the earlier bound: more is a problem


def read_baseline(path: Path, slice_name: str) -> dict[str, dict[str, Any]]:
    """The steps of an earlier forecast by name. Raises UsageError."""
    try:
        found = json.loads(path.read_text("utf-8"))
        before = f"{found['chip']['name']}-{found['chip']['count']}"
        steps = {step["name"]: step for step in found["steps"] if not step["error"]}
    except OSError as error:
        raise UsageError(f"--baseline {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"--baseline {path}: not a forecast: write one with --format json"
        ) from None
    if before != slice_name:
        raise UsageError(f"--baseline {path}: is of a {before}, this forecast of a {slice_name}")
    return steps


def slower(found: Forecast, before: dict[str, dict[str, Any]], path: Path) -> Iterator[str]:
    """A line for each step that is slower than in the baseline, or no longer there."""
    now = {name: step for step in found.steps for name in (step.name, *step.also)}
    for name, old in before.items():
        step = now.get(name)
        if step is None:
            yield f"{name} is in {path}, but not in this forecast"
        elif not step.error and step.bounds.seconds > SLOWER * old["bound"]:
            yield (
                f"{name}: the bound of a step is {1e3 * step.bounds.seconds:,.3g} ms, "
                f"{step.bounds.seconds / old['bound'] - 1:.0%} more than the "
                f"{1e3 * old['bound']:,.3g} ms in {path}"
            )
