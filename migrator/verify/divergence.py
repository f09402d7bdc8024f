"""Holds a run against a golden: step by step, and at the end. Where do they part?

Numbers are those of `recorder/watch.py`. What may differ: see docs/tolerances.md.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import VerifyError
from .inside import child_environment
from .recordings import Recording, recorder

# Of the largest magnitude in a tensor: what sums in another order, through some layers, come to.
# float16 becomes bfloat16 on a TPU. Measured by benchmarks/tolerances.py.
UNITS = {"F64": 1e-6, "F32": 1e-5, "F16": 2**-6, "BF16": 2**-6}
_ROUNDED = 8.0  # as in recorder/compare_run.py
_NUMBER = re.compile(
    r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)"
)
_TIME = re.compile(
    r"it/s|s/it|\btimes?\b|\bms\b|\bsec|\bMi?B\b|\bGi?B\b|elapsed|duration|\d\s?s\b|\beta\b|took",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ORDER = ("start", "input", "output", "loss", "gradients", "buffers", "end", "file", "printed")


@dataclass(frozen=True)
class Finding:
    """One value or tensor that was compared. ``ratio`` is its difference by what is allowed."""

    kind: str  # of _ORDER
    name: str
    place: str  # path in a state or an output, or the text around a printed number
    step: int
    order: int  # in the run
    ratio: float
    reason: str | None  # why it failed
    want: float | None = None
    got: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    max_ulp: float | None = None
    allowed: float | None = None
    elements: int = 1
    shape: Sequence[int] = ()
    dtype: str = ""
    line: str = ""  # of the original

    @property
    def passed(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class Comparison:
    """Everything that was compared of two runs, in the order of the golden."""

    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # of the golden, not in the run
    losses: list[tuple[float, float]] = field(default_factory=list)  # golden, run

    @property
    def first(self) -> Finding | None:
        """Where they part."""
        failed = [f for f in self.findings if not f.passed]
        return min(failed, key=lambda f: f.order) if failed else None

    @property
    def passed(self) -> bool:
        return bool(self.findings) and not self.missing and self.first is None


@dataclass
class _Pairs:
    """Pairs of tensors to compare, with what is known of each."""

    about: list[dict[str, Any]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)

    def add(self, golden: str, rounding: str | None, run: str, **about: Any) -> None:
        self.keys.append({"golden": golden, "rounding": rounding, "run": run})
        self.about.append(about)


def compare(
    golden: Recording,
    rounded: Recording | None,
    run: Recording,
    python: Path,
    folder: Path,
    kinds: Sequence[str] = _ORDER,
) -> Comparison:
    """Compare what both have of ``kinds``; tensors by ``python``, which needs NumPy.

    Raises VerifyError where that fails.
    """
    result = Comparison()
    pairs = _Pairs()
    ours, theirs = _by_key(run.events), _by_key(rounded.events if rounded else [])
    spread = 0.0
    for order, (key, event) in enumerate(_by_key(golden.events).items()):
        kind, name = event["kind"], event["name"]
        if kind not in kinds:
            continue
        other, again = ours.get(key), theirs.get(key)
        where = f"{kind} of {name}, {_ordinal(key[2])}" if kind != "loss" else f"loss {key[2]}"
        if other is None:
            result.missing.append(where)
            continue
        about = {"kind": kind, "name": name, "step": event["step"], "order": order,
                 "line": event["line"]}  # fmt: skip
        if kind == "loss":
            want, got = event["value"], other["value"]
            moved = abs(again["value"] - want) if again else 0.0
            spread = max(spread, moved if math.isfinite(moved) else 0.0)
            allowed = UNITS["F32"] * max(abs(want), 1e-3) + _ROUNDED * (moved + spread)
            result.losses.append((want, got))
            result.findings.append(_scalar(about, "", want, got, allowed))
        elif kind == "gradients":
            result.findings.extend(_norms(about, event, other, again))
        for path, tensor in event.get("tensors", {}).items():
            mine = other["tensors"].get(path)
            if mine is None:
                result.missing.append(f"{where}: {path or 'its value'}")
                continue
            third = again["tensors"].get(path) if again else None
            pairs.add(tensor, third, mine, place=path, **about)
    if "file" in kinds:
        _files(golden, rounded, run, pairs, result)
    if "printed" in kinds:
        result.findings.extend(_printed(golden, rounded, run))
    result.findings.extend(_tensors(golden, rounded, run, pairs, python, folder))
    result.findings.sort(key=lambda f: f.order)
    return result


def _by_key(events: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Events by kind, name and how many of these there were before."""
    count: Counter[tuple[str, str]] = Counter()
    found = {}
    for event in events:
        key = (event["kind"], event["name"])
        count[key] += 1
        found[(*key, count[key])] = event
    return found


def _ordinal(number: int) -> str:
    return f"call {number}"


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
    again: dict[str, Any] | None,
) -> Iterator[Finding]:
    """The norms of all gradients of one step of an optimizer; of a parameter to that of all."""
    whole = math.sqrt(sum(n * n for n in event["norms"].values() if math.isfinite(n)))
    for name, want in event["norms"].items():
        got = other["norms"].get(name)
        if got is None:
            found = Finding(
                place=name, ratio=math.inf, reason="there is no gradient", want=want, **about
            )
            yield found
            continue
        moved = abs(again["norms"].get(name, want) - want) if again else 0.0
        allowed = UNITS["F32"] * max(10 * want, whole) + _ROUNDED * 2 * moved
        yield _scalar(about, name, want, got, allowed)


def _files(
    golden: Recording,
    rounded: Recording | None,
    run: Recording,
    pairs: _Pairs,
    result: Comparison,
) -> None:
    ours = {f["name"]: f for f in run.files}
    third = {f["name"]: f for f in rounded.files} if rounded else {}
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
            again = third.get(file["name"], {}).get("tensors", {}).get(path)
            pairs.add(tensor, again, mine, kind="file", name=file["name"], place=path,
                      step=golden.steps, order=10**8 + number, line="")  # fmt: skip


def _tensors(
    golden: Recording,
    rounded: Recording | None,
    run: Recording,
    pairs: _Pairs,
    python: Path,
    folder: Path,
) -> Iterator[Finding]:
    rows = compare_tensors(golden, rounded, run, pairs.keys, python, folder)
    for about, row in zip(pairs.about, rows, strict=True):
        row.pop("at", None)
        reason, ratio = row.pop("reason"), row.pop("ratio", math.inf)
        if about["kind"] == "input" and about["step"] == 0 and reason:
            reason = f"the batches differ: {reason}"
        yield Finding(
            ratio=ratio if reason is None else max(ratio, 1.0), reason=reason, **about, **row
        )


def compare_tensors(
    golden: Recording,
    rounded: Recording | None,
    run: Recording,
    pairs: Sequence[dict[str, Any]],
    python: Path,
    folder: Path,
) -> list[dict[str, Any]]:
    """A row of `recorder/compare_run.py` for each of ``pairs``, by ``python``, which needs NumPy.

    Raises VerifyError where that fails.
    """
    if not pairs:
        return []
    spec = {
        "golden": str(golden.path.absolute()),
        "rounding": str(rounded.path.absolute()) if rounded else None,
        "run": str(run.path.absolute()),
        "pairs": pairs,
        "units": UNITS,
    }
    path = folder / "compare.json"
    path.write_text(json.dumps(spec), "utf-8")
    with recorder() as program:
        done = subprocess.run(
            [str(python), str(program / "compare_run.py"), str(path)],
            capture_output=True, text=True, env=child_environment(), check=False,
        )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise VerifyError(f"the tensors could not be compared: {last}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def _printed(golden: Recording, rounded: Recording | None, run: Recording) -> Iterator[Finding]:
    """Numbers that both print in the same text; an integer is compared where a fraction is, too."""
    ours, third = _by_text(run.printed), _by_text(rounded.printed if rounded else "")
    for order, (key, numbers) in enumerate(_by_text(golden.printed).items()):
        text, _ = key
        about: dict[str, Any] = {"kind": "printed", "name": "printed", "step": golden.steps,
                 "order": 10**9 + order, "line": ""}  # fmt: skip
        got = ours.get(key)
        if got is None or len(got) != len(numbers):
            yield Finding(place=text, ratio=math.inf, reason="is not printed", **about)
            continue
        again = third.get(key)
        for place, (want, other) in enumerate(zip(numbers, got, strict=True)):
            value, digit = _value(want)
            moved = abs(_value(again[place])[0] - value) if again and len(again) > place else 0.0
            allowed = 1.01 * digit + UNITS["F32"] * abs(value) + _ROUNDED * moved
            yield _scalar(about, text, value, _value(other)[0], allowed)


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
    for line in re.split(r"[\r\n]+", _ESCAPES.sub("", printed)):
        if _TIME.search(line) or "warn" in line.lower() or ".py" in line:
            continue
        numbers = _NUMBER.findall(line)
        if any("." in n or "n" in n for n in numbers):
            text = _NUMBER.sub("#", line).strip()
            count[text] += 1
            found[(text, count[text])] = numbers
    return found
