"""Whether what differs in float32 is rounding: both programs run again, in float64.

There rounding is a billion times smaller, however far a program amplifies it, and a fault stays as
large as it was. Two things would look alike: rounding, and products or tensors that the migrated
program keeps in a lower precision. So float32's own error, its distance from float64, may not be
much larger than the original's: PyTorch judges its compilers in the same way, with `fp64_ref` in
`torch._dynamo.utils.same`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from .comparisons import Finding, InFloat64
from .divergence import by_key
from .drift import norm_of_all
from .originals import record_original, run_name
from .recordings import Recording
from .tolerances import LESS_EXACT, SMALL_LOSS, UNITS, Tolerances
from .verify_errors import VerifyError

if TYPE_CHECKING:
    from .migrated_runs import MigratedRuns
    from .script_result import ScriptResult

_WHY = "in float64 what differs is not rounding"
_FOLDER = "float64"


def decide_in_float64(runs: MigratedRuns, result: ScriptResult) -> ScriptResult:
    """The result with what float64 says of its differences, if rounding may have made them."""
    if not _may_be_rounding(runs, result):
        return result
    work = runs.work / _FOLDER
    work.mkdir()
    settings = replace(runs.settings, float64=True, layers=False)
    options = replace(runs.options, bisect=False, diff=False)
    runs.runs.expect({run_name(0): runs.to_round}, _WHY)
    try:
        exact = record_original(
            runs.script, work, runs.python, settings, runs.runs, options.keep, how=", in float64"
        )
        again = replace(
            runs, settings=settings, options=options, work=work, first=exact, known=None,
            rounded=[], recorded={}, report=None,
        )  # fmt: skip
        tolerances = replace(result.tolerances, float64=True)
        found = again.compared_runs(_nothing_yet(result, tolerances))
    except VerifyError as error:
        return replace(result, notes=[*result.notes, f"not decided in float64: {error}"])
    if found.problems or not found.compared:
        why = "; ".join(found.problems) or "nothing was compared"
        return replace(result, notes=[*result.notes, f"not decided in float64: {why}"])
    findings = [*found.stepwise.findings, *found.compiled.findings]
    others = found.stepwise.is_other or found.compiled.is_other
    failed = sum(not f.passed for f in findings) + others
    said = InFloat64(len(findings), failed, _times(runs, result, exact), _first(found))
    return replace(result, float64=said)


def _first(found: ScriptResult) -> str:
    """The first difference in float64, as a part of a sentence; "" for none."""
    first = found.first
    if first is None:
        return ""
    place = f"{first.name}{'.' if first.place else ''}{first.place}"
    return f", first {place} ({first.kind}) in step {first.step + 1}"


def _may_be_rounding(runs: MigratedRuns, result: ScriptResult) -> bool:
    """Whether nothing but finite numbers differs, and float64 can be had."""
    able = runs.has_operators and runs.known is None and runs.settings.roundings
    if result.passed or result.problems or runs.settings.float64 or not able:
        return False
    parts = result.stepwise, result.compiled
    failed: list[Finding] = [f for part in parts for f in part.findings if not f.passed]
    return bool(failed) and not any(f.is_odd for f in failed) and not any(p.is_other for p in parts)


def _nothing_yet(result: ScriptResult, tolerances: Tolerances) -> ScriptResult:
    return type(result)(result.script, result.target, tolerances=tolerances, quick=result.quick)


def _times(runs: MigratedRuns, result: ScriptResult, exact: Recording) -> float:
    """The largest error of float32 in a migrated run that differs, by the original's so far."""
    most = math.nan
    for name, part in (("stepwise", result.stepwise), ("compiled", result.compiled)):
        if part.first is None or name not in runs.recorded:
            continue
        compiled = name == "compiled"
        theirs = dict(_errors(exact, runs.first, compiled))
        for step, error in _errors(exact, runs.recorded[name], compiled):
            before = max((e for s, e in theirs.items() if s <= step), default=0.0)
            times = error / max(before, UNITS["F32"] / LESS_EXACT)
            most = times if math.isnan(most) else max(most, times)
    return most


def _errors(exact: Recording, run: Recording, compiled: bool) -> Iterator[tuple[int, float]]:
    """By step, how far losses and gradient norms are from those in float64, relative to them."""
    wanted, found = by_key(exact.events, compiled), by_key(run.events, compiled)
    largest: dict[int, float] = {}
    for key, event in wanted.items():
        other = found.get(key)
        if other is None:
            continue
        if event["kind"] == "loss":
            want = float(event["value"])
            error = abs(float(other["value"]) - want) / max(abs(want), SMALL_LOSS)
        elif event["kind"] == "gradients":
            norms = {name: float(norm) for name, norm in event["norms"].items()}
            off = {n: float(other["norms"].get(n, norm)) - norm for n, norm in norms.items()}
            error = norm_of_all(off) / (norm_of_all(norms) or 1.0)
        else:
            continue
        if math.isfinite(error):
            largest[event["step"]] = max(largest.get(event["step"], 0.0), error)
    yield from sorted(largest.items())
