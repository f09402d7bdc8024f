"""Prints a forecast."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.report.statistics import count_noun
from migrator.verify.chips import Chip
from migrator.verify.number_formats import show_notes

from .forecast import Forecast, figure, gib
from .forecast_advice import memory_advice
from .roofline import Cost, StepEstimate
from .tried_tables import TriedTable, tables_of


def show(found: Forecast, console: Console) -> None:
    """The steps, what costs most in the longest, advice, hours; notes and problems last."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    chip = found.chip
    say(found.label, "bold")
    say(
        f"data sheet: {chip.peak / 1e12:,.0f} TFLOP/s in bfloat16, {chip.hbm // 2**30} GiB of HBM "
        f"at {chip.hbm_bandwidth / 1e9:,.0f} GB/s, "
        f"{chip.ici_bandwidth / 1e9:,.0f} GB/s between chips{_sent(chip)} ({chip.source})"
    )
    compiled = [step for step in found.steps if not step.error]
    if compiled:
        console.print(_steps(compiled))
        console.print(_memory(compiled))
        longest = max(compiled, key=lambda step: step.bounds.seconds)
        if longest.lines:
            console.print(_costs(f"{longest.name}, by line", longest.lines))
            console.print(_costs(f"{longest.name}, by operation", longest.operations))
    if found.on_gpu:
        say(f"today: {found.on_gpu}", "bold")
    for tried in tables_of(found):
        console.print(_tried(tried))
        for line in tried.lines:
            say(line, "dim")
    for step in found.steps:
        for line in memory_advice(step, chip):
            say(f"to make {step.name} fit: {line}", "yellow")
    for advice in found.advice:
        where = f"{advice.line}  " if advice.line else ""
        say(f"{_ms(advice.seconds)} ms of {advice.step}: {where}{advice.what}")
        say(f"    {advice.edit} ({advice.basis})", "dim")
    if found.price:
        _show_price(found, say)
    show_notes(found.notes, console)
    if found.log_tail:
        say(f"The last lines of its output:\n{found.log_tail}")
    for problem in found.problems:
        say(problem, "red")


def _sent(chip: Chip) -> str:
    if chip.count == 1:
        return ""
    return f", {chip.sends / 1e9:,.0f} GB/s out of a chip in a slice of {chip.count}"


def _show_price(found: Forecast, say: Callable[[str], None]) -> None:
    price = found.price
    assert price is not None
    line = (
        f"{price.what}: {price.least_hours:,.3g} hours at the bound, "
        f"{price.hours:,.3g} at {price.efficiency:.0%} of it"
    )
    if price.least is not None and price.money is not None:
        chips = count_noun(found.chip.count, "chip")
        line += f"; {price.least:,.2f} to {price.money:,.2f}, for {chips}"
    say(line)


def _steps(steps: list[StepEstimate]) -> Table:
    caption = (
        "ms of one device. bound: what the data sheet allows at best; estimate: "
        "mostly by the compiler's cost model"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("step", overflow="fold")
    exchanges = any(step.bounds.interconnect for step in steps)
    headings = ["GFLOP", "GB of HBM", "matrix units", "HBM",
                *(("interconnect", "not hidden") if exchanges else ()), "bound", "binds",
                "estimate"]  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for step in steps:
        bounds = step.bounds
        table.add_row(
            escape(f"{step.name} ({step.kind})"), figure(step.flops / 1e9),
            figure(step.accessed / 1e9), _ms(bounds.matrix), _ms(bounds.hbm),
            *((_ms(bounds.interconnect), _ms(step.exposed)) if exchanges else ()),
            _ms(bounds.seconds), bounds.binding,
            "-" if step.estimate is None else _ms(step.estimate),
        )  # fmt: skip
    return table


def _memory(steps: list[StepEstimate]) -> Table:
    caption = (
        "GiB of one device. temporaries: activations, and gradients that end with the step; "
        "others: the batch, and results"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("memory of", overflow="fold")
    parts = [*dict.fromkeys(name for step in steps for name in step.shown)]
    for heading in ("needs", "of", *parts):
        table.add_column(heading, justify="right")
    for step in steps:
        table.add_row(
            escape(step.name), gib(step.hbm), gib(step.capacity),
            *(gib(step.shown[part]) if part in step.shown else "-" for part in parts),
        )  # fmt: skip
    return table


def _tried(tried: TriedTable) -> Table:
    table = Table(title=tried.title, caption=tried.caption, caption_justify="left")
    for number, heading in enumerate(tried.headings):
        table.add_column(escape(heading), justify="left" if number < tried.words else "right")
    for row in tried.rows:
        table.add_row(*map(escape, row))
    return table


def _costs(title: str, costs: list[Cost]) -> Table:
    table = Table(title=escape(title))
    table.add_column("line", overflow="fold")
    table.add_column("what", overflow="fold")
    for heading in ("times", "ms", "GFLOP", "MB of HBM", "ms of padding"):
        table.add_column(heading, justify="right")
    for cost in costs:
        table.add_row(
            escape(cost.line or "-"), escape(cost.text if title.endswith("line") and cost.text
                                             else cost.name),
            f"{cost.count:,}", _ms(cost.seconds), figure(cost.flops / 1e9),
            figure(cost.bytes / 1e6), _ms(cost.padding),
        )  # fmt: skip
    return table


def _ms(seconds: float) -> str:
    return figure(1000 * seconds)
