"""The first difference of a run from a golden, step by step and at the end (docs/tolerances.md)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import stepping
from .comparisons import LAST, Comparison, Finding, moved_by_rounding, scalar
from .drift import USUAL, Events, Gain, Gains, gains_of, growth_by_step, norm_of_all, unit_of_norm
from .printed import _DIGITS, is_decided, printed_numbers
from .recordings import Recording
from .safetensors_files import compare_tensors
from .tolerances import (
    DECIDED,
    KINDS,
    LOST,
    MOVED,
    ONE_OF,
    ONE_OF_DECISIONS,
    ROUNDED,
    SMALL_LOSS,
    Tolerances,
    judged_with_others,
)

_CALLS = ("input", "output")
_WITHIN = (*_CALLS, "loss", "gradients")
NO_GRADIENT = "there is no gradient"
NEW_GRADIENT = "there is a gradient, and none in the original"


@dataclass
class _Pairs:
    """Pairs of tensors to compare, with the facts known about each."""

    about: list[dict[str, Any]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        golden: str,
        roundings: list[str | None],
        run: str,
        start: str | None = None,
        growth: float = 1.0,
        gain: Gain = USUAL,
        **about: Any,
    ) -> None:
        """``start``: the tensor of the golden that it was at first; Inf that the program itself put
        there, as in masks, may still be there."""
        is_trained = about["kind"] in ("weights", "end", "file") or (
            about["kind"] == "start" and about["step"] > 0
        )
        given = about["kind"] in ("start", "input", "buffers")
        kept = about["kind"] == "file" and start is None  # like Lightning's best score
        infinite = golden if given or kept else start
        key = {"golden": golden, "roundings": roundings, "run": run, "infinite": infinite,
               "start": start, "growth": growth, "few": gain.few * is_trained, "one_of": ONE_OF,
               "moved": MOVED * is_trained, "rounded": gain.times,
               "gain": gain.times / ROUNDED, "steps": about["step"], "follows": gain.follows,
               "decided": DECIDED * (about["kind"] == "output"),
               "one_of_decisions": ONE_OF_DECISIONS}  # fmt: skip
        if about["kind"] == "file":
            key |= judged_with_others(about["name"], about["place"])
        self.keys.append(key)
        self.about.append(about)


def compare(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    python: Path,
    folder: Path,
    kinds: Sequence[str] = KINDS,
    tolerances: Tolerances = Tolerances(),  # noqa: B008
    compiled: bool = False,
) -> Comparison:
    """Compare what both have of ``kinds``; tensors by ``python``, which needs NumPy.

    Where one of them ended too early: as far as both came, without what is only there at the end.
    ``compiled``: of the calls of models, the run has only some that evaluate, and losses and
    gradients where they can be seen. Raises VerifyError where that fails.
    """
    runs = _Compared.of(golden, rounded, run, tolerances, compiled)
    result = Comparison(
        partial=bool(golden.ended or run.ended),
        shortened=run.shortened and not golden.shortened,
        growth=runs.grown[-1],
    )
    if result.is_cut:
        kinds = [kind for kind in kinds if kind not in ("end", "file")]
    pairs = _Pairs()
    if "gradients" in kinds and not compiled:  # first, because the rest depends on it
        wanted, ours = (list(events.values()) for events in (runs.wanted, runs.ours))
        result.findings.extend(stepping.counted_otherwise(wanted, ours, result.is_cut))
    started = runs.compare(kinds, result, pairs)
    if not result.is_cut and not golden.shortened:
        result.surplus.extend(_surplus(runs.ours, runs.wanted, kinds))
    if "file" in kinds:
        _files(golden, rounded, run, pairs, result, runs.gains, started)
    if "printed" in kinds:
        result.findings.extend(printed_numbers(golden, rounded, run, tolerances, result))
    found = list(_tensors(golden, rounded, run, pairs, python, folder, tolerances))
    if result.growth * tolerances.units["F32"] > LOST:
        late = [f for f in found if f.kind in ("end", "file") and f.is_number]
        result.lost.extend(f"{f.name}.{f.place}" for f in late)
        found = [f for f in found if f not in late]
    result.findings.extend(found)
    result.findings.sort(key=lambda f: f.order)
    return result


@dataclass(frozen=True)
class _Compared:
    """The events of the golden, of its roundings and of the run, with the tolerances."""

    wanted: Events
    theirs: list[Events]  # of the roundings
    ours: Events
    grown: list[float]
    gains: Gains
    tolerances: Tolerances
    compiled: bool

    @staticmethod
    def of(
        golden: Recording,
        rounded: Sequence[Recording],
        run: Recording,
        tolerances: Tolerances,
        compiled: bool,
    ) -> _Compared:
        wanted, theirs = (
            by_key(golden.events, compiled),
            [by_key(r.events, compiled) for r in rounded],
        )
        grown = growth_by_step(wanted, theirs, golden.steps)
        gains = gains_of(wanted, theirs, grown, tolerances)
        ours = by_key(run.events, compiled)
        return _Compared(wanted, theirs, ours, grown, gains, tolerances, compiled)

    def compare(
        self, kinds: Sequence[str], result: Comparison, pairs: _Pairs
    ) -> dict[tuple[str, str], str]:
        """Compare what is of `kinds`, or add it to the pairs of tensors.

        Returns the tensors of first states, by model and path.
        """
        both = [o for o, key in enumerate(self.wanted) if key in self.ours and key[0] != "end"]
        came_to = (both or [-1])[-1] if result.is_cut else len(self.wanted)
        unseen = ("weights", *(_WITHIN if self.compiled else ()))  # inside of a compiled program
        started: dict[tuple[str, str], str] = {}
        spread = 0.0
        for order, (key, event) in enumerate(self.wanted.items()):
            kind, name = event["kind"], event["name"]
            if kind == "start" and event["step"] == 0:
                started |= {(name, path): tensor for path, tensor in event["tensors"].items()}
            if kind not in kinds:
                continue
            other, where = self.ours.get(key), _where(key, event)
            if other is None:
                if order < came_to and kind not in unseen:
                    result.missing.append(where)
                continue
            again = [events[key] for events in self.theirs if key in events]
            about = {"kind": kind, "name": name, "step": event["step"], "order": order,
                     "line": event["line"], "loop": event.get("loop", "")}  # fmt: skip
            times = self.grown[event["step"]]
            if kind == "loss":
                values = [event["value"] for event in again]
                spread = max(spread, moved_by_rounding(float(event["value"]), values))
                finding = _loss(about, event, other, values, times, spread, self.tolerances)
                result.losses.append((float(event["value"]), float(other["value"])))
                result.findings.append(finding)
            elif kind == "metric":
                values = [event["value"] for event in again]
                finding = _metric(about, event, other, values, times, self.tolerances)
                result.findings.append(finding)
            elif kind == "gradients":
                result.findings.extend(_norms(about, event, other, again, self.tolerances, times))
            there = [events.get(key, {}).get("tensors", {}) for events in self.theirs]
            mine = other.get("tensors", {})
            absent = _pair(event, mine, there, started, self.gains, times, pairs, about)
            result.missing.extend(f"{where}: {path or 'its value'}" for path in absent)
        return started


def _where(key: tuple[str, str, int], event: dict[str, Any], of: str = "") -> str:
    kind, name, number = key
    line = f" ({event['line']}{of})" if event["line"] else ""
    if kind == "loss":  # its name may contain the step
        return name.replace("loss", f"loss {number}", 1) + line
    return f"{kind} of {name}, call {number}{line}"


def _loss(
    about: dict[str, Any],
    event: dict[str, Any],
    other: dict[str, Any],
    again: Sequence[float | str],
    times: float,
    spread: float,
    tolerances: Tolerances,
) -> Finding:
    """A loss. ``spread``: the most that rounding has moved any loss so far."""
    want, got = float(event["value"]), float(other["value"])
    unit = tolerances.units[event.get("dtype", "F32")]
    spread += moved_by_rounding(want, again)
    allowed = times * unit * max(abs(want), SMALL_LOSS) + ROUNDED * spread
    return scalar(about, "", want, got, allowed * tolerances.factor("loss"))


def _metric(
    about: dict[str, Any],
    event: dict[str, Any],
    other: dict[str, Any],
    again: Sequence[float | str],
    times: float,
    tolerances: Tolerances,
) -> Finding:
    """A metric; of a share of decisions, a few may differ."""
    want, got = float(event["value"]), float(other["value"])
    allowed = times * tolerances.units["F32"] * max(abs(want), SMALL_LOSS)
    allowed += ROUNDED * moved_by_rounding(want, again)
    allowed += DECIDED if is_decided(event["name"]) else 0.0
    return scalar(about, "", want, got, allowed * tolerances.factor("metric"))


def _pair(
    event: dict[str, Any],
    mine: Mapping[str, str],
    theirs: Sequence[Mapping[str, str]],
    started: Mapping[tuple[str, str], str],
    gains: Gains,
    times: float,
    pairs: _Pairs,
    about: dict[str, Any],
) -> Iterator[str]:
    """Pair the tensors of an event with those of the run; returns the missing paths."""
    for path, tensor in event.get("tensors", {}).items():
        if path not in mine:
            yield path
            continue
        others = [tensors.get(path) for tensors in theirs]
        first = None if event["kind"] == "output" else started.get((event["name"], path))
        if event["kind"] == "start" and first is None:  # a copy of a trained model
            first = _first(path, started)
        gain = gains.of(f"{event['name']}.{path}", event["step"], started)
        pairs.add(tensor, others, mine[path], first, times, gain, place=path, **about)


def _surplus(ours: Events, wanted: Events, kinds: Sequence[str]) -> Iterator[str]:
    """Losses and gradients that only the run has."""
    for key, event in ours.items():
        if key[0] in ("loss", "gradients") and key[0] in kinds and key not in wanted:
            yield _where(key, event, " as migrated")


def by_key(events: Sequence[dict[str, Any]], compiled: bool = False) -> Events:
    """Events by kind, name and number of earlier ones; weights by step.

    A program compiled as a whole may take several steps at once. ``compiled``: leaves out what
    can't be seen inside compiled steps; of model calls, only evaluations remain.
    """
    count: Counter[tuple[str, str]] = Counter()
    found = {}
    for event in events:
        key = (event["kind"], event["name"])
        if compiled and event["kind"] in _WITHIN:
            if event["kind"] in _CALLS and event.get("training", True):  # missing in older goldens
                continue
            key = (event["kind"], f"{event['name']} in step {event['step'] + 1}")
        count[key] += 1
        found[(*key, event["step"] if event["kind"] == "weights" else count[key])] = event
    return found


def _norms(
    about: dict[str, Any],
    event: dict[str, Any],
    other: dict[str, Any],
    again: Sequence[dict[str, Any]],
    tolerances: Tolerances,
    growth: float,
) -> Iterator[Finding]:
    """The norms of all gradients of an optimizer's step, each relative to the norm of all.

    First, gradients that only one of both runs has, as with a teacher that is not detached.
    """
    norms = {name: float(norm) for name, norm in event["norms"].items()}
    yield from _only_in_one(about, event.get("others"), other.get("others"))
    new = [name for name, norm in other["norms"].items() if name not in norms and float(norm)]
    yield from _only_in_one(about, [], new)
    whole = norm_of_all(norms)
    for name, want in norms.items():
        got = other["norms"].get(name)
        if got is None:
            yield Finding(place=name, ratio=math.inf, reason=NO_GRADIENT, want=want, **about)
            continue
        moved = moved_by_rounding(want, (event["norms"].get(name, want) for event in again))
        unit = tolerances.units[event.get("dtypes", {}).get(name, "F32")]
        allowed = growth * unit_of_norm(unit, want, whole) + 2 * ROUNDED * moved
        yield scalar(about, name, want, float(got), allowed * tolerances.factor("gradients"))


def _only_in_one(
    about: dict[str, Any], wanted: Sequence[str] | None, got: Sequence[str] | None
) -> Iterator[Finding]:
    """Gradients that only one run has; None if that was not recorded."""
    if wanted is None or got is None:
        return
    theirs, ours = dict.fromkeys(wanted, NO_GRADIENT), dict.fromkeys(got, NEW_GRADIENT)
    for name, reason in {**theirs, **ours}.items():
        if not (name in theirs and name in ours):
            yield Finding(place=name, ratio=math.inf, reason=reason, **about)


def _files(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    pairs: _Pairs,
    result: Comparison,
    gains: Gains,
    started: Mapping[tuple[str, str], str],
) -> None:
    ours = _by_name(golden.files, run.files)
    third = [_by_name(golden.files, r.files) for r in rounded]
    for number, file in enumerate(golden.files):
        other = ours.get(file["name"])
        if not file["tensors"]:
            continue
        if other is None:
            result.missing.append(f"the file {file['name']}")
            continue
        for path, tensor in file["tensors"].items():
            mine = other["tensors"].get(path)
            if mine is None:
                error = other.get("error", "")
                result.missing.append(f"{file['name']}: {path}{f' ({error})' if error else ''}")
                continue
            again = [files.get(file["name"], {}).get("tensors", {}).get(path) for files in third]
            gain = gains.of_file(path, golden.steps, started)
            first = _first(path, started)
            pairs.add(tensor, again, mine, first, result.growth, gain, kind="file",
                      name=file["name"], place=path, step=golden.steps, order=LAST + number,
                      line="")  # fmt: skip


def _first(path: str, started: Mapping[tuple[str, str], str]) -> str | None:
    """The first state of a parameter that has another path: in a file, or in a copy."""
    found = {
        tensor
        for (_, known), tensor in started.items()
        if f".{path}".endswith(f".{known}") or f".{known}".endswith(f".{path}")
    }
    return found.pop() if len(found) == 1 else None


def _by_name(
    golden: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The run's files by their names in the golden; folders may be named after the time."""
    found = {file["name"]: file for file in files}
    wanted = [file["name"] for file in golden]
    left = [name for name in found if name not in wanted]
    for name in wanted:
        alike = [other for other in left if _DIGITS.sub("", other) == _DIGITS.sub("", name)]
        if name not in found and alike:
            left.remove(alike[0])
            found[name] = found.pop(alike[0])
    return found


def _tensors(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    pairs: _Pairs,
    python: Path,
    folder: Path,
    tolerances: Tolerances,
) -> Iterator[Finding]:
    keys = [
        {**pair, "factor": tolerances.factor(about["kind"])}
        for pair, about in zip(pairs.keys, pairs.about, strict=True)
    ]
    rows = compare_tensors(
        golden.path, run.path, keys, python, folder, [r.path for r in rounded], tolerances.units
    )
    for about, row in zip(pairs.about, rows, strict=True):
        if about["kind"] == "input" and about["step"] == 0 and row["reason"]:
            row["reason"] = f"the batches differ: {row['reason']}"
        yield Finding(**about, **row)
