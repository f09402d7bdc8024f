"""Tables for the result of one app, and of several."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .chips import chip_of
from .number_formats import number, share
from .tpu import CompiledForTpu, TpuReport, mib, precision_of
from .verify_result import VerifyResult


def body(result: VerifyResult, console: Console) -> None:
    """Outputs, times, measurements, precision."""
    if result.outputs:
        console.print(_outputs(result))
        for output in result.outputs:
            if not output.passed:
                text = f"{output.name}: {output.reason}"
                console.print(Text(text, style="red"), soft_wrap=True)
    if result.times:
        console.print(_times(result))
    if result.figures:
        console.print(_figures(result))
    if result.measures:
        console.print(_measures(result))
    if result.tpu is not None and result.in_parts:
        text = (
            f"Not compiled as a whole: {', '.join(result.in_parts)}. What a TPU needs for these is "
            "not known; below is the rest, such as optimizers and single operators."
        )
        console.print(Text(text, style="yellow"), soft_wrap=True)
    if result.precision is not None:
        style = "" if result.precision.passed else "red"
        for line in result.precision.lines():
            console.print(Text(line, style=style), soft_wrap=True)
    if result.tpu is not None:
        _show_tpu(result.tpu, console)
    if result.compiled is not None:
        console.print("for speed, not for the verdict:")
        for line in result.compiled.splitlines():
            console.print(Text(f"  {line}"), soft_wrap=True)


def _show_tpu(report: TpuReport, console: Console) -> None:
    console.print(Text(report.label), soft_wrap=True)
    steps = [step for step in report.compiled_steps if not step.error]
    if steps:
        console.print(_tpu_steps(steps, chip_of(report.compile_for).hbm))
    for line in report.lines():
        console.print(Text(f"  {line}"), soft_wrap=True)


def _tpu_steps(steps: list[CompiledForTpu], hbm: int) -> Table:
    caption = (
        "HBM in MiB: arguments + outputs - outputs in place of arguments + temporary + code; "
        f"a chip has {hbm // 2**20:,}"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("program", overflow="fold", min_width=8)
    parts = ("arguments", "outputs", "in place", "temporary", "code")
    for heading in ("HBM", *parts, "GFLOP", "GB accessed", "collectives"):
        table.add_column(heading, justify="right")
    table.add_column("float32 products", no_wrap=True)
    for step in steps:
        sizes = (step.hbm, step.arguments, step.outputs, step.in_place, step.temporaries, step.code)
        table.add_row(
            escape(step.name),
            *map(mib, sizes),
            f"{step.flops / 1e9:,.3g}",
            f"{step.accessed / 1e9:,.3g}",
            ", ".join(f"{sum(n.values())} {kind}" for kind, n in step.collectives.items()) or "0",
            precision_of([step]),
        )
    return table


def verdict(result: VerifyResult) -> str:
    """The verdict in one line that claims no more than was done."""
    what = f"{result.app} on the {result.device}"
    if result.passed and result.golden_device is None:
        parts = " in parts" if result.in_parts else ""
        return f"DONE: {what}: it was run and compiled{parts}; no numbers were compared"
    if result.passed:
        return f"PASS: {what}: {_agree(result.compared)} with the golden ({result.golden_device})"
    failed = sum(not output.passed for output in result.outputs)
    reasons = list(result.problems)
    if failed:
        reasons.insert(0, f"{failed} of {len(result.outputs)} outputs disagree with the golden")
    return f"FAIL: {what}: {'; '.join(reasons) or 'no output was compared'}"


def summary(results: Sequence[VerifyResult]) -> Table:
    """All results, one line each."""
    table = Table(title="summary", caption="seconds: sums over the steps", caption_justify="left")
    for heading in ("app", "target", "devices"):
        table.add_column(heading, overflow="fold")
    for heading in ("outputs", "max abs", "of tolerance", "first run", "later runs"):
        table.add_column(heading, justify="right")
    table.add_column("golden", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for result in results:
        word = "ERROR" if result.error is not None else "PASS" if result.passed else "FAIL"
        table.add_row(
            escape(result.app),
            result.target,
            escape(result.device or "-"),
            f"{result.compared}" if result.error is None else "-",
            _nearest(result),
            share(output.ratio for output in result.outputs if output.elements),
            _seconds(_sum(time.first for time in result.times)),
            _seconds(_sum(time.later for time in result.times)),
            escape(result.golden_device or "-"),
            Text(word, style="green" if result.passed else "red"),
        )
    return table


def _nearest(result: VerifyResult) -> str:
    """The largest difference, of the output that is closest to its tolerance."""
    compared = [output for output in result.outputs if output.elements]
    worst = max(compared, key=lambda output: output.ratio, default=None)
    return number(worst.max_abs if worst else None)


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None


def _agree(outputs: int) -> str:
    return "1 output agrees" if outputs == 1 else f"{outputs} outputs agree"


def _outputs(result: VerifyResult) -> Table:
    table = Table(title=escape(f"{result.app}, {result.device}, against {result.golden_device}"))
    table.add_column("result")
    table.add_column("output", overflow="fold", min_width=12)
    for heading in ("max abs", "of tolerance"):
        table.add_column(heading, justify="right")
    table.add_column("tolerance", overflow="fold")
    for output in result.outputs:
        table.add_row(
            Text("pass", style="green") if output.passed else Text("FAIL", style="red"),
            escape(output.name),
            number(output.max_abs),
            share([output.ratio]),
            str(output.tolerance or "-"),
        )
    return table


def _times(result: VerifyResult) -> Table:
    table = Table(title=escape(f"seconds, {result.device} against {result.golden_device}"))
    if result.seconds is not None:
        table.caption = f"the whole script took {result.seconds:.1f} s"
    table.add_column("step")
    for heading in ("first run (compiles)", "later runs", "golden, first run", "golden, later"):
        table.add_column(heading, justify="right")
    for time in result.times:
        cells = (time.first, time.later, time.golden_first, time.golden_later)
        table.add_row(escape(time.name), *(_seconds(cell) for cell in cells))
    return table


def _figures(result: VerifyResult) -> Table:
    table = Table(title=escape(f"what {result.app} says of its runs"))
    table.add_column("figure", overflow="fold")
    for heading in ("here", "golden"):
        table.add_column(heading, justify="right")
    for figure in result.figures:
        here, golden = (
            "-" if value is None else f"{value:.4g}" for value in (figure.here, figure.golden)
        )
        table.add_row(escape(figure.name), here, golden)
    return table


def _measures(result: VerifyResult) -> Table:
    table = Table(title="measured", show_lines=True)
    for heading in ("what", "here", "beside"):
        table.add_column(heading, overflow="fold")
    table.add_column("result")
    for row in result.measures:
        verdict = {
            None: Text(""),
            True: Text("pass", style="green"),
            False: Text("FAIL", style="red"),
        }[row.passed]
        table.add_row(escape(row.what), escape(row.here), escape(row.beside), verdict)
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
