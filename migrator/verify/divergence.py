"""Holds a run against a golden: step by step, and at the end. Where do they part?

Numbers are those of `recorder/watch.py`. What may differ: see docs/tolerances.md.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from .findings import LAST, Comparison, Finding, moved_by_rounding, scalar
from .printed import _DIGITS, printed_numbers
from .recordings import Recording
from .tensors import compare_tensors
from .tolerances import (
    FEW,
    GROWN,
    KINDS,
    LOST,
    ONE_OF,
    OWN_NORM,
    ROUNDED,
    SMALL_LOSS,
    ULP,
    Tolerances,
)

_Events = dict[tuple[str, str, int], dict[str, Any]]  # by kind, name and number
_CALLS = ("input", "output")
_WITHIN = (*_CALLS, "loss", "gradients")


@dataclass
class _Pairs:
    """Pairs of tensors to compare, with what is known of each."""

    about: list[dict[str, Any]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        golden: str,
        roundings: list[str | None],
        run: str,
        start: str | None = None,
        growth: float = 1.0,
        gain: float = ROUNDED,
        **about: Any,
    ) -> None:
        """``start``: the tensor of the golden that it was at first; Inf that the program itself put
        there, as in masks, may still be there."""
        is_trained = about["kind"] in ("weights", "end", "file") or (
            about["kind"] == "start" and about["step"] > 0
        )
        few = FEW if is_trained else 0.0
        infinite = golden if about["kind"] in ("start", "input") else start
        key = {"golden": golden, "roundings": roundings, "run": run, "infinite": infinite,
               "start": start, "growth": growth, "few": few, "one_of": ONE_OF,
               "rounded": gain}  # fmt: skip
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
    ours, theirs = _by_key(run.events, compiled), [_by_key(r.events, compiled) for r in rounded]
    wanted = _by_key(golden.events, compiled)
    grown = _growth(wanted, theirs, golden.steps)
    gains = _gains(wanted, theirs, grown, tolerances)
    result = Comparison(
        partial=bool(golden.ended or run.ended),
        shortened=run.shortened and not golden.shortened,
        growth=grown[-1],
    )
    if result.is_cut:
        kinds = [kind for kind in kinds if kind not in ("end", "file")]
    pairs = _Pairs()
    both = [order for order, key in enumerate(wanted) if key in ours and key[0] != "end"]
    came_to = (both or [-1])[-1] if result.is_cut else len(wanted)
    started: dict[tuple[str, str], str] = {}  # tensors of first states, by model and path
    spread = 0.0
    for order, (key, event) in enumerate(wanted.items()):
        kind, name = event["kind"], event["name"]
        if kind == "start" and event["step"] == 0:
            started |= {(name, path): tensor for path, tensor in event["tensors"].items()}
        if kind not in kinds:
            continue
        other, again = ours.get(key), [events[key] for events in theirs if key in events]
        where = f"{kind} of {name}, {_ordinal(key[2])}" if kind != "loss" else f"loss {key[2]}"
        if other is None:
            unseen = ("weights", *(_WITHIN if compiled else ()))  # within a compiled program
            if order < came_to and kind not in unseen:
                result.missing.append(where)
            continue
        about = {"kind": kind, "name": name, "step": event["step"], "order": order,
                 "line": event["line"]}  # fmt: skip
        times = grown[event["step"]]
        if kind == "loss":
            values = [event["value"] for event in again]
            spread = max(spread, moved_by_rounding(float(event["value"]), values))
            finding = _loss(about, event, other, values, times, spread, tolerances)
            result.losses.append((float(event["value"]), float(other["value"])))
            result.findings.append(finding)
        elif kind == "gradients":
            result.findings.extend(_norms(about, event, other, again, tolerances, times))
        there = [events.get(key, {}).get("tensors", {}) for events in theirs]
        absent = _pair(event, other.get("tensors", {}), there, started, gains, times, pairs, about)
        result.missing.extend(f"{where}: {path or 'its value'}" for path in absent)
    if not result.is_cut:
        result.missing.extend(_surplus(ours, wanted, kinds))
    if "file" in kinds:
        _files(golden, rounded, run, pairs, result, gains, started)
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


def _loss(
    about: dict[str, Any],
    event: dict[str, Any],
    other: dict[str, Any],
    again: Sequence[float | str],
    times: float,
    spread: float,
    tolerances: Tolerances,
) -> Finding:
    """A loss. ``spread``: what rounding has moved any loss by until now."""
    want, got = float(event["value"]), float(other["value"])
    unit = tolerances.units[event.get("dtype", "F32")]
    spread += moved_by_rounding(want, again)
    allowed = times * unit * max(abs(want), SMALL_LOSS) + ROUNDED * spread
    return scalar(about, "", want, got, allowed * tolerances.factor("loss"))


def _pair(
    event: dict[str, Any],
    mine: Mapping[str, str],
    theirs: Sequence[Mapping[str, str]],
    started: Mapping[tuple[str, str], str],
    gains: _Gains,
    times: float,
    pairs: _Pairs,
    about: dict[str, Any],
) -> Iterator[str]:
    """Pair the tensors of an event with those of the run; the paths that are missing there."""
    for path, tensor in event.get("tensors", {}).items():
        if path not in mine:
            yield path
            continue
        others = [tensors.get(path) for tensors in theirs]
        first = None if event["kind"] == "output" else started.get((event["name"], path))
        if event["kind"] == "start" and first is None:  # of a copy of what was trained
            first = _first(path, started)
        gain = gains.until(f"{event['name']}.{path}", event["step"])
        pairs.add(tensor, others, mine[path], first, times, gain, place=path, **about)


def _surplus(ours: _Events, wanted: _Events, kinds: Sequence[str]) -> Iterator[str]:
    """Losses and gradients that only the run has."""
    for kind, name, number in ours:
        if kind in ("loss", "gradients") and kind in kinds and (kind, name, number) not in wanted:
            yield f"{kind} {number} is not in the golden"


def _growth(wanted: _Events, rounded: Sequence[_Events], last: int) -> list[float]:
    """How many times of itself a difference by rounding may be before each step: `GROWN` times what
    it has grown to, at most, in one of the runs.

    Of losses and gradient norms, relative to the loss and to the norm of all gradients: the largest
    difference at a step by that at one before it, in one of the runs. At any step two back ends may
    differ by a unit more than the roundings did, where a ReLU cuts off or a maximum is another's.
    """
    found = [1.0] * (last + 1)
    for events in rounded:
        moved = [ULP] * (last + 1)
        for key, event in events.items():
            if key not in wanted or event["step"] > last:
                continue
            want, size = wanted[key], 0.0
            if event["kind"] == "loss":
                value = float(want["value"])
                size = moved_by_rounding(value, [event["value"]]) / max(abs(value), SMALL_LOSS)
            elif event["kind"] == "gradients":
                norms = {name: float(norm) for name, norm in want["norms"].items()}
                others = {name: [event["norms"].get(name, n)] for name, n in norms.items()}
                apart = [moved_by_rounding(n, others[name]) for name, n in norms.items()]
                size = max(apart, default=0.0) / (_whole(norms) or 1.0)
            if math.isfinite(size):
                moved[event["step"]] = max(moved[event["step"]], size)
        for step in range(1, last + 1):
            found[step] = max(found[step], moved[step] / min(moved[:step]))
    return [1.0, *(GROWN * grown for grown in accumulate(found[1:], max))]


def _by_key(events: Sequence[dict[str, Any]], compiled: bool = False) -> _Events:
    """Events by kind, name and how many of these there were before; weights by the step.

    A program that is compiled as a whole may take several steps at once. ``compiled``: what is not
    seen of all steps, by how many there were in one; of calls of models, those that evaluate.
    """
    count: Counter[tuple[str, str]] = Counter()
    found = {}
    for event in events:
        key = (event["kind"], event["name"])
        if compiled and event["kind"] in _WITHIN:
            if event["kind"] in _CALLS and event.get("training", True):  # older goldens don't say
                continue
            key = (event["kind"], f"{event['name']} in step {event['step'] + 1}")
        count[key] += 1
        found[(*key, event["step"] if event["kind"] == "weights" else count[key])] = event
    return found


def _ordinal(number: int) -> str:
    return f"call {number}"


def _norms(
    about: dict[str, Any],
    event: dict[str, Any],
    other: dict[str, Any],
    again: Sequence[dict[str, Any]],
    tolerances: Tolerances,
    growth: float,
) -> Iterator[Finding]:
    """The norms of all gradients of one step of an optimizer; of a parameter to that of all."""
    norms = {name: float(norm) for name, norm in event["norms"].items()}
    whole = _whole(norms)
    for name, want in norms.items():
        got = other["norms"].get(name)
        if got is None:
            found = Finding(
                place=name, ratio=math.inf, reason="there is no gradient", want=want, **about
            )
            yield found
            continue
        moved = moved_by_rounding(want, (event["norms"].get(name, want) for event in again))
        unit = tolerances.units[event.get("dtypes", {}).get(name, "F32")]
        allowed = growth * _unit_of_norm(unit, want, whole) + 2 * ROUNDED * moved
        yield scalar(about, name, want, float(got), allowed * tolerances.factor("gradients"))


def _unit_of_norm(unit: float, norm: float, whole: float) -> float:
    """How far the norm of a gradient may be off, but for what rounding does to it."""
    return unit * max(OWN_NORM * norm, whole)


@dataclass
class _Gains:
    """How many times what rounding does to a weight it may be off, by its name.

    A gradient may be off by its unit, which is more than rounding moved it. What an optimizer makes
    of that is many times what it made of rounding, by as much: little of SGD, a lot of Adam, which
    divides by the size of the gradient.
    """

    steps: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def until(self, name: str, step: int) -> float:
        """After so many steps of optimizers."""
        return max((gain for at, gain in self.steps.get(name, ()) if at < step), default=ROUNDED)

    def of_file(self, path: str, step: int) -> float:
        """Of a tensor in a file, where it is named as a parameter."""
        names = [n for n in self.steps if n.endswith(f".{path}") or n.partition(".")[2] == path]
        inner = [n for n in self.steps if path.endswith("." + n.partition(".")[2])]
        return max((self.until(name, step) for name in names or inner), default=ROUNDED)


def _gains(
    wanted: _Events, rounded: Sequence[_Events], grown: Sequence[float], tolerances: Tolerances
) -> _Gains:
    found = _Gains()
    for key, event in wanted.items():
        if event["kind"] != "gradients":
            continue
        norms = {name: float(norm) for name, norm in event["norms"].items()}
        whole = _whole(norms)
        for name, norm in norms.items():
            again = [events[key]["norms"].get(name, norm) for events in rounded if key in events]
            unit = tolerances.units[event.get("dtypes", {}).get(name, "F32")]
            allowed = grown[event["step"]] * _unit_of_norm(unit, norm, whole)
            moved = max(moved_by_rounding(norm, again), ULP * norm)
            if again and moved:
                found.steps[name].append((event["step"], max(ROUNDED, allowed / moved)))
    return found


def _whole(norms: Mapping[str, float]) -> float:
    """The norm of all gradients."""
    return math.sqrt(sum(n * n for n in norms.values() if math.isfinite(n)))


def _files(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    pairs: _Pairs,
    result: Comparison,
    gains: _Gains,
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
            gain = gains.of_file(path, golden.steps)
            first = _first(path, started)
            pairs.add(tensor, again, mine, first, result.growth, gain, kind="file",
                      name=file["name"], place=path, step=golden.steps, order=LAST + number,
                      line="")  # fmt: skip


def _first(path: str, started: Mapping[tuple[str, str], str]) -> str | None:
    """The first state of a parameter that is known by another path: in a file, or in a copy."""
    found = {
        tensor
        for (_, known), tensor in started.items()
        if f".{path}".endswith(f".{known}") or f".{known}".endswith(f".{path}")
    }
    return found.pop() if len(found) == 1 else None


def _by_name(
    golden: Sequence[Mapping[str, Any]], files: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The files of a run by their names in the golden: a folder may be named after the time."""
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
