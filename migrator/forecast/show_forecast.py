"""Prints a forecast."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.verify.chips import Chip
from migrator.verify.number_formats import show_notes

from .forecast import Forecast, figure, gib
from .forecast_advice import memory_advice
from .roofline import Cost, StepEstimate
from .smallest_slice import SliceTrial
from .ways import ChangeTrial


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
        longest = max(compiled, key=lambda step: step.bounds.seconds)
        if longest.lines:
            console.print(_costs(f"{longest.name}, by line", longest.lines))
            console.print(_costs(f"{longest.name}, by operation", longest.operations))
    if found.trials:
        console.print(_trials(found))
    if found.changes:
        console.print(_changes(found))
        for change in found.changes:
            if change.edit:
                say(f"{change.change}: {change.error or change.edit}", "dim")
    if found.slices:
        console.print(_slices(found))
        for each in found.slices:
            if each.error:
                say(f"{_slice(found, each)}: {each.error}", "dim")
        say(_smallest(found), "bold")
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
        f"{price.steps:,} steps of {price.step}: {price.least_hours:,.3g} hours at the bound, "
        f"{price.hours:,.3g} at {price.efficiency:.0%} of it"
    )
    if price.least is not None and price.money is not None:
        line += f"; {price.least:,.2f} to {price.money:,.2f}, for {found.chip.count} chips"
    say(line)


def _steps(steps: list[StepEstimate]) -> Table:
    caption = (
        "ms of one device. bound: what the data sheet allows at best; estimate: "
        "mostly by the compiler's cost model. HBM in GiB: arguments + outputs + temporaries + code"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("step", overflow="fold")
    headings = ("GFLOP", "GB of HBM", "matrix units", "HBM", "interconnect", "not hidden", "bound",
                "binds", "estimate", "needs", "of", "parts")  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for step in steps:
        bounds = step.bounds
        table.add_row(
            escape(f"{step.name} ({step.kind})"),
            figure(step.flops / 1e9), figure(step.accessed / 1e9),
            _ms(bounds.matrix), _ms(bounds.hbm), _ms(bounds.interconnect), _ms(step.exposed),
            _ms(bounds.seconds), bounds.binding,
            "-" if step.estimate is None else _ms(step.estimate),
            gib(step.hbm), gib(step.capacity), " + ".join(map(gib, step.memory.values())),
        )  # fmt: skip
    return table


def _trials(found: Forecast) -> Table:
    table = Table(caption="HBM in GiB, of the step that needs most", caption_justify="left")
    table.add_column(escape(found.largest or ""), justify="right")
    for heading in ("needs", "of", "fits", "bound, ms", "ms for one"):
        table.add_column(heading, justify="right")
    for trial in found.trials:
        whole = "-" if trial.bound is None else _ms(trial.bound)
        one = "-" if trial.bound is None else _ms(trial.bound / trial.value)
        fits = "yes" if trial.fits else "no"
        table.add_row(f"{trial.value:,}", gib(trial.hbm), gib(trial.capacity), fits, whole, one)
    return table


def _slices(found: Forecast) -> Table:
    table = Table(
        caption="HBM in GiB, of the step that needs most; bounds of all steps",
        caption_justify="left",
    )
    table.add_column("slice")
    table.add_column("--shard")
    table.add_column("recomputed")
    for heading in ("needs", "of", "fits", "bound, ms", "in bfloat16"):
        table.add_column(heading, justify="right")
    for each in found.slices:
        table.add_row(
            f"{found.chip.name}-{each.chips}", each.shard or "-", "yes" if each.recompute else "no",
            *_needs(each, each.bfloat16),
        )  # fmt: skip
    return table


def _changes(found: Forecast) -> Table:
    table = Table(
        caption="compiled again with each change. HBM in GiB, of the step that needs most; ms of "
        "all steps",
        caption_justify="left",
    )
    table.add_column("change")
    for heading in ("needs", "of", "fits", "bound, ms", "estimate, ms"):
        table.add_column(heading, justify="right")
    for each in found.changes:
        table.add_row(each.change, *_needs(each, each.estimate))
    return table


def _needs(tried: SliceTrial | ChangeTrial, seconds: float | None) -> list[str]:
    """Memory, whether it fits, the bound, and other seconds."""
    memory = (gib(size) if tried.hbm else "-" for size in (tried.hbm, tried.capacity))
    times = ("-" if each is None else _ms(each) for each in (tried.bound, seconds))
    return [*memory, "yes" if tried.fits else "no", *times]


def _smallest(found: Forecast) -> str:
    fitting = [each for each in found.slices if each.fits]
    if not fitting:
        return "no slice of this chip that the compiler knows fits"
    best = min(fitting, key=lambda each: (each.chips, each.bound))
    return f"the smallest that fits: {_slice(found, best)}; its figures are above"


def _slice(found: Forecast, tried: SliceTrial) -> str:
    divided = f" with --shard {tried.shard}" if tried.shard else ""
    again = ", activations computed again" if tried.recompute else ""
    return f"{found.chip.name}-{tried.chips}{divided}{again}"


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
