"""The table for a script's result: the worst value of each kind, and the first difference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.diagnostics import first_of
from migrator.report.html.verify_numbers import PageNumbers, Row

from .bisection_table import bisected
from .comparisons import Comparison, Finding
from .layer_tree import for_page, tree
from .number_formats import largest, share
from .script_result import ScriptResult

_WORDS = {
    "steps": "steps of optimizers",
    "start": "weights at the start",
    "input": "inputs of models",
    "output": "outputs of models",
    "loss": "losses",
    "metric": "metrics",
    "gradients": "gradient norms",
    "buffers": "buffers",
    "weights": "weights after a step",
    "end": "weights at the end",
    "file": "files",
    "printed": "printed numbers",
}
QUICK = "quick: the first steps only"
STAND_IN = "CPU stand-in for CUDA"  # as recordings have it
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48  # size of a chart, in characters


def body(result: ScriptResult, console: Console) -> None:
    """The comparison, the drift of the losses, where the runs part."""
    if result.compared:
        console.print(_table(result))
    chart = drift(result.losses)
    for line in chart:
        console.print(Text(line), soft_wrap=True)
    parting = () if result.is_rounding else (("", result.stepwise), ("compiled: ", result.compiled))
    for how, comparison in parting:
        for line in _parting(comparison):
            console.print(Text(how + line, style="red"), soft_wrap=True)
    for model in tree(result.layers) if result.layers is not None else ():
        console.print(model)
    if result.bisection is not None:
        console.print(bisected(result.bisection), soft_wrap=True)
    elif result.stepwise.first is not None and not result.is_rounding:
        console.print(Text("--bisect finds the operation.", style="dim"), soft_wrap=True)


def verdict(result: ScriptResult) -> str:
    """The verdict in one line that claims no more than was done."""
    what = f"{result.script} on the {result.device}"
    if result.passed:
        far = ", as far as both ran" if result.partial else ""
        far += f" ({QUICK})" if result.quick else ""
        agree = f"{result.compared} values agree with the original's on {_place(result)}"
        if result.float64 is not None:
            agree = f"{_disagreeing(result)}, which is {result.float64.sentence}"
        return f"PASS{far}: {what}: {agree}"
    reasons, first = list(result.problems), result.stepwise.first
    if disagreeing := _disagreeing(result):
        reasons.append(disagreeing)
    if result.float64 is not None:
        reasons.append(result.float64.sentence)
    if first is not None and first.kind == "steps":  # everything else follows from that
        reasons.insert(0, f"{first.name} {first.reason}")
    else:
        runs = result.stepwise, result.compiled
        reasons += _listed("missing", (place for run in runs for place in run.missing))
        reasons += _listed("not in the golden", (place for run in runs for place in run.surplus))
    return f"FAIL: {what}: {'; '.join(reasons) or 'nothing was compared'}"


def _disagreeing(result: ScriptResult) -> str:
    """How many values differ, in words; "" if none does."""
    found = [*result.stepwise.findings, *result.compiled.findings]
    failed = sum(not f.passed for f in found)
    text = f"{failed} of {len(found)} values disagree with the original's on {_place(result)}"
    return text if failed else ""


def _place(result: ScriptResult) -> str:
    """Where the original ran: a GPU by its name, or the CPU in the place of one."""
    return "the CPU" if result.golden_device == STAND_IN else result.golden_device


def _listed(what: str, places: Iterable[str]) -> list[str]:
    listed = [*dict.fromkeys(places)]
    return [f"{what}: {first_of(listed, 1)}"] if listed else []


def _table(result: ScriptResult) -> Table:
    seconds = ", ".join(f"{name} {s:.1f} s" for name, s in result.seconds.items())
    table = Table(
        title=escape(f"{result.device}, against the original on {_place(result)}"),
        caption=f"{_allowed(result)}\ntook: {seconds}",
        caption_justify="left",
    )
    table.add_column("result")
    table.add_column("what", overflow="fold", min_width=14)
    for heading in ("values", "max abs", "of allowed"):
        table.add_column(heading, justify="right")
    for row in rows(result):
        state = Text(row.short, style="green" if row.passed else "red")
        table.add_row(state, f"{row.what}, {row.run}", row.number, row.largest, row.share)
    return table


def numbers(result: ScriptResult) -> PageNumbers:
    """The same for the HTML report."""
    lines = [
        line for comparison in (result.stepwise, result.compiled) for line in _parting(comparison)
    ]
    return PageNumbers(
        verdict(result), result.passed, list(rows(result)), result.losses, lines,
        result.notes, _allowed(result), for_page(result.layers) if result.layers else [],
    )  # fmt: skip


def rows(result: ScriptResult) -> Iterator[Row]:
    """The compared values: the worst of each kind."""
    for how, comparison in (("step by step", result.stepwise), ("compiled", result.compiled)):
        ordered = sorted(comparison.findings, key=lambda f: list(_WORDS).index(f.kind))
        for kind, group in groupby(ordered, key=lambda f: f.kind):
            yield _row(_WORDS[kind], how, list(group), result.is_rounding)


def _allowed(result: ScriptResult) -> str:
    factors = result.tolerances.factors.items()
    times = (f", × {factor:g}{f' for {kind}' if kind else ''}" for kind, factor in factors)
    return f"allowed: what rounding does to the original{''.join(times)}"


def _row(what: str, how: str, found: list[Finding], is_rounding: bool) -> Row:
    failed = [f for f in found if not f.passed]
    if failed:
        first = min(failed, key=lambda f: f.order)
        name = f"{first.name}{'.' if first.place else ''}{first.place}"
        word = "rounding" if is_rounding else "FAIL"
        short, more = f"{word}: {len(failed)}", f", first {name} in step {first.step + 1}"
    else:
        short, more = "pass", ""
    return Row(
        what, how, str(len(found)), largest(f.max_abs for f in found),
        share(f.ratio for f in found), short, short + more, not failed or is_rounding,
    )  # fmt: skip


def _parting(comparison: Comparison) -> list[str]:
    """The first difference, in at most two lines."""
    first = comparison.first
    if first is None:
        return []
    place = f".{first.place}" if first.place else ""
    loop = f"loop: {first.loop}; " if first.loop else ""
    where = f" ({loop}{first.line})" if first.line else ""
    lines = [
        f"first difference: {_WORDS[first.kind]}: {first.name}{place}, step {first.step + 1}{where}"
    ]
    numbers = ""
    if first.want is not None and first.got is not None:
        numbers = f": original {first.want:.7g}, here {first.got:.7g}"
    return [*lines, f"  {first.reason}{numbers}"]


def drift(losses: list[tuple[float, float]]) -> list[str]:
    """The losses of both programs and their difference over the steps; "" for few steps."""
    if len(losses) < 3:
        return []
    want = [w for w, _ in losses]
    off = [abs(g - w) for w, g in losses]
    largest = max((o for o in off if math.isfinite(o)), default=0.0)
    return [
        f"original  {_bars(want)}  {want[0]:.4g} → {want[-1]:.4g}",
        f"here      {_bars([g for _, g in losses])}  {losses[0][1]:.4g} → {losses[-1][1]:.4g}",
        f"apart     {_bars(off, zero=True)}  at most {largest:.3g}, over {len(losses)} losses",
    ]


def _bars(values: list[float], zero: bool = False) -> str:
    size = max(1, math.ceil(len(values) / _WIDTH))
    means = [values[i : i + size] for i in range(0, len(values), size)]
    points = [sum(part) / len(part) for part in means]
    finite = [p for p in points if math.isfinite(p)]
    low, high = (0.0 if zero else min(finite, default=0.0)), max(finite, default=0.0)
    span = (high - low) or 1.0
    return "".join(
        _BARS[round((p - low) / span * (len(_BARS) - 1))] if math.isfinite(p) else "×"
        for p in points
    )
