"""Holds a run against a golden: step by step, and at the end. Where do they part?

Numbers are those of `recorder/watch.py`. What may differ: see docs/tolerances.md.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from migrator.targets import targets

from .recordings import Recording
from .tensors import Difference, compare_tensors
from .tolerances import (
    DECIDED,
    FEW,
    GROWN,
    KINDS,
    LOST,
    ONE_OF,
    OWN_NORM,
    PRINTED,
    ROUNDED,
    SMALL_LOSS,
    ULP,
    Tolerances,
)

_NUMBER = re.compile(
    r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)"
)
_TIME = re.compile(
    r"\d%\||\[\d+:\d\d<|it/s|s/it|\btimes?\b|\bms\b|\bsec|\bMi?B\b|\bGi?B\b|elapsed|duration"
    r"|\d\s?[mu]?s\b|\beta\b|took",
    re.IGNORECASE,
)
# Shares of decisions, each of which a rounding can turn over; what is no such share after all.
_DECIDED = re.compile(
    r"(?:\b|_)(?:acc|accuracy|correct|precision|recall|f1|m?iou|dice|top[-#]?|error rate)(?:\b|_|#)"
    r"(?!.*\b(?:loss|lr)\b)",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CLOCK = re.compile(  # when it was printed: of ctime, of logging, of ISO 8601
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\s+)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d+\s+\d\d:\d\d:\d\d\s+\d{4}\b"
    r"|\b\d{4}[-/]\d\d[-/]\d\d(?:T(?=\d)|\b)|(?<![\d.])\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
)
_DEVICES = ["cuda", *(target.words.device for target in targets().values())]
_DEVICE = re.compile(rf"\b(?:{'|'.join(_DEVICES)})\b(?::\d+)?")
# A warning of Python's, of one line or a few, and the line that it is about.
_WARNING = re.compile(r"^.*\.py:\d+: \w*Warning: (?:.*\n){1,4}?  \S.*$", re.MULTILINE)
_DIGITS = re.compile(r"\d+")
_PADDED = re.compile(r"(?<=\[) (#)|(?<=#) (?=\])")  # NumPy aligns numbers
_Events = dict[tuple[str, str, int], dict[str, Any]]  # by kind, name and number
_CALLS = ("input", "output")
_WITHIN = (*_CALLS, "loss", "gradients")
_LAST = 10**8  # the order of what is only there at the end


@dataclass(frozen=True)
class Finding(Difference):
    """One value or tensor that was compared."""

    kind: str  # of KINDS
    name: str
    place: str  # path in a state or an output, or the text around a printed number
    step: int
    order: int  # in the run
    line: str = ""  # of the original

    @property
    def is_odd(self) -> bool:
        """Whether it fails by more than its numbers: NaN, shape, dtype, or not there."""
        return self.reason is not None and (self.allowed is None or "NaN" in self.reason)

    @property
    def is_number(self) -> bool:
        """Whether it is a tensor of numbers with fractions, all finite, of the right shape."""
        return self.allowed is not None and not self.is_odd


@dataclass(frozen=True)
class Comparison:
    """Everything that was compared of two runs, in the order of the golden."""

    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # of the golden, not in the run; or too much
    losses: list[tuple[float, float]] = field(default_factory=list)  # golden, run
    partial: bool = False  # one of them ended too early: compared as far as both came
    shortened: bool = False  # the run was only to go on for some steps
    growth: float = 1.0  # how many times of itself a difference by rounding may be at the end
    lost: list[str] = field(default_factory=list)  # what rounding alone moves that far

    @property
    def first(self) -> Finding | None:
        """Where they part."""
        failed = [f for f in self.findings if not f.passed]
        return min(failed, key=lambda f: f.order) if failed else None

    @property
    def is_cut(self) -> bool:
        """Whether the end is not compared."""
        return self.partial or self.shortened

    @property
    def may_be_rounding(self) -> bool:
        """Whether a number is off by more than is allowed: what NaN, or a shape, never is."""
        return any(not f.passed and not f.is_odd for f in self.findings)

    @property
    def compared(self) -> int:
        """How many values and tensors were compared, each by at least one element."""
        return sum(f.elements > 0 for f in self.findings)

    @property
    def passed(self) -> bool:
        return self.compared > 0 and not self.missing and self.first is None


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
            want, got = float(event["value"]), float(other["value"])
            moved = _moved(want, (event["value"] for event in again))
            spread = max(spread, moved)
            unit = tolerances.units[event.get("dtype", "F32")]
            allowed = times * unit * max(abs(want), SMALL_LOSS) + ROUNDED * (moved + spread)
            result.losses.append((want, got))
            allowed *= tolerances.factor(kind)
            result.findings.append(_scalar(about, "", want, got, allowed))
        elif kind == "gradients":
            result.findings.extend(_norms(about, event, other, again, tolerances, times))
        for path, tensor in event.get("tensors", {}).items():
            mine = other["tensors"].get(path)
            if mine is None:
                result.missing.append(f"{where}: {path or 'its value'}")
                continue
            others = [events.get(key, {}).get("tensors", {}).get(path) for events in theirs]
            first = None if kind == "output" else started.get((name, path))
            if kind == "start" and first is None:  # of a copy of what was trained
                first = _first(path, started)
            gain = gains.until(f"{name}.{path}", event["step"])
            pairs.add(tensor, others, mine, first, times, gain, place=path, **about)
    if not result.is_cut:
        result.missing.extend(
            f"{kind} {number} is not in the golden"
            for kind, name, number in ours
            if kind in ("loss", "gradients")
            and kind in kinds
            and (kind, name, number) not in wanted
        )
    if "file" in kinds:
        _files(golden, rounded, run, pairs, result, gains, started)
    if "printed" in kinds:
        result.findings.extend(_printed(golden, rounded, run, tolerances, result))
    found = list(_tensors(golden, rounded, run, pairs, python, folder, tolerances))
    if result.growth * tolerances.units["F32"] > LOST:
        late = [f for f in found if f.kind in ("end", "file") and f.is_number]
        result.lost.extend(f"{f.name}.{f.place}" for f in late)
        found = [f for f in found if f not in late]
    result.findings.extend(found)
    result.findings.sort(key=lambda f: f.order)
    return result


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
                size = _moved(value, [event["value"]]) / max(abs(value), SMALL_LOSS)
            elif event["kind"] == "gradients":
                norms = {name: float(norm) for name, norm in want["norms"].items()}
                apart = [_moved(n, [event["norms"].get(name, n)]) for name, n in norms.items()]
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


def _moved(want: float, again: Iterable[float | str]) -> float:
    """How far rounding moved a number; 0 where it is none any more."""
    moved = [abs(float(other) - want) for other in again]
    return max((m for m in moved if math.isfinite(m)), default=0.0)


def _scalar(about: dict[str, Any], place: str, want: float, got: float, allowed: float) -> Finding:
    off = abs(got - want)
    bad = not (math.isfinite(want) and math.isfinite(got))
    ratio = math.inf if bad else off / allowed if off else 0.0
    reason = None
    if bad:
        reason = "NaN or Inf"
    elif ratio > 1:
        reason = f"off by {off:.3g}, allowed {allowed:.3g}"
    relative = off / abs(want) if want and not bad else None
    return Finding(place=place, ratio=ratio, reason=reason, want=want, got=got, max_abs=off,
                   max_rel=relative, allowed=allowed, **about)  # fmt: skip


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
        moved = _moved(want, (event["norms"].get(name, want) for event in again))
        unit = tolerances.units[event.get("dtypes", {}).get(name, "F32")]
        allowed = growth * _unit_of_norm(unit, want, whole) + 2 * ROUNDED * moved
        yield _scalar(about, name, want, float(got), allowed * tolerances.factor("gradients"))


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
            moved = max(_moved(norm, again), ULP * norm)
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
                      name=file["name"], place=path, step=golden.steps, order=_LAST + number,
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


def _printed(
    golden: Recording,
    rounded: Sequence[Recording],
    run: Recording,
    tolerances: Tolerances,
    result: Comparison,
) -> Iterator[Finding]:
    """Numbers that both print in the same text; an integer is compared where a fraction is, too."""
    ours, third = _by_text(run.printed), [_by_text(r.printed) for r in rounded]
    for order, (key, numbers) in enumerate(_by_text(golden.printed).items()):
        text, _ = key
        about: dict[str, Any] = {"kind": "printed", "name": "printed", "step": golden.steps,
                 "order": 10 * _LAST + order, "line": ""}  # fmt: skip
        got = ours.get(key)
        if got is None and result.is_cut:
            continue
        if got is None or len(got) != len(numbers):
            yield Finding(place=text, ratio=math.inf, reason="is not printed", **about)
            continue
        again = [texts.get(key, []) for texts in third]
        decided = _decided(text, numbers)
        for place, (want, other) in enumerate(zip(numbers, got, strict=True)):
            value, digit = _value(want)
            moved = _moved(value, (_value(a[place])[0] for a in again if len(a) > place))
            allowed = result.growth * tolerances.units["F32"] * abs(value) + ROUNDED * moved
            allowed = decided[place] + PRINTED * digit + tolerances.factor("printed") * allowed
            yield _scalar(about, text, value, _value(other)[0], allowed)


def _decided(text: str, numbers: Sequence[str]) -> list[float]:
    """What each of the numbers may be off because a few decisions fell otherwise; 0 for others.

    ``text`` has # in the place of each number.
    """
    most = max((float(n) for n in numbers if n.isdecimal()), default=1.0)
    found: list[float] = []
    before = ""
    for number, part in zip(numbers, text.split("#"), strict=False):
        before = re.split(r"[,;|\t]", before + part)[-1]
        behind = text.split("#", len(found) + 1)[-1].lstrip()
        whole = most if number.isdecimal() else 100.0 if behind.startswith("%") else 1.0
        found.append(DECIDED * whole if _DECIDED.search(before) else 0.0)
    return found


def _value(text: str) -> tuple[float, float]:
    """A number, and what one unit in its last printed place is worth."""
    mantissa, _, exponent = text.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    digit = 10.0 ** (int(exponent or 0) - places) if "." in mantissa or exponent else 0.0
    return float(text), digit


def _by_text(printed: str) -> dict[tuple[str, int], list[str]]:
    """The numbers of each line with a fraction in it, by the text around them; no times."""
    found: dict[tuple[str, int], list[str]] = {}
    count: Counter[str] = Counter()
    plain = _DEVICE.sub("device", _WARNING.sub("", _ESCAPES.sub("", printed)))
    for line in re.split(r"[\r\n\b]+", _CLOCK.sub("", plain)):
        if _TIME.search(line) or "warn" in line.lower() or ".py" in line:
            continue
        numbers = _NUMBER.findall(line)
        if any("." in n or "n" in n for n in numbers):
            text = _PADDED.sub(r"\1", " ".join(_NUMBER.sub("#", line).split()))
            count[text] += 1
            found[(text, count[text])] = numbers
    return found
