"""Makes the forecast of a script: it is migrated and run, and its steps are compiled for a TPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from migrator.distribution import __version__
from migrator.report.statistics import count_noun
from migrator.verify.chips import Chip
from migrator.verify.gpu_steps import GpuSteps
from migrator.verify.runtime_report import HostRead, RuntimeReport
from migrator.verify.tpu import TpuReport
from migrator.verify.verification import folder_of, verify_script
from migrator.verify.verify_result import VerifyResult, finite

from .forecast_advice import Advice, advice_for, memory_advice
from .hlo import parse
from .memory_parts import parts_of
from .operation_costs import operations
from .roofline import Cost, StepEstimate, step_of, without_twins

# Where each figure is from; none is of a run on a TPU.
BASIS = {
    "flops": "products in the compiled text",
    "accessed": "arrays of HBM in the compiled text, with padding",
    "collectives": "bytes of a ring, over the links that a chip of this slice has",
    "exposed": "collectives between whose start and end the estimate has no other work",
    "memory": "compiler",
    "estimate": "cycles of the compiler's cost model, where it has some, otherwise the bound; "
    "kernels with their padding; of collectives what is not hidden",
    "bounds": "FLOPs and bytes over the rates of the data sheet",
    "padding": "shapes in the compiled text, and the data sheet",
}


@dataclass(frozen=True)
class Price:
    """Hours and money of training: at the bound, and at the efficiency.

    ``steps``: in all, or of each of the ``epochs``.
    """

    step: str
    steps: int
    epochs: int | None
    efficiency: float
    least_hours: float
    hours: float
    per_chip_hour: float | None
    least: float | None
    money: float | None

    @property
    def what(self) -> str:
        """`90 epochs of 5,004 steps of train_step`."""
        steps = f"{self.steps:,} steps of {self.step}"
        return steps if self.epochs is None else f"{count_noun(self.epochs, 'epoch')} of {steps}"


@dataclass(frozen=True)
class Forecast:
    """``error``: there is none; ``problems``: a step is missing or does not fit."""

    script: str
    chip: Chip  # in its slice
    error: str | None = None
    steps: list[StepEstimate] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    price: Price | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    log_tail: str | None = None
    runtime: str | None = None  # programs and steps of the run, one a line
    largest: str | None = None  # the option whose largest value was looked for
    trials: list[Any] = field(default_factory=list)  # of its values
    slices: list[Any] = field(default_factory=list)  # that were tried for the smallest
    changes: list[Any] = field(default_factory=list)  # that were tried, compiled again
    on_gpu: GpuSteps | None = None  # what `record` measured there

    @property
    def label(self) -> str:
        return f"Compiled for, not run on, a {self.chip.label} ({self.chip.name}-{self.chip.count})"

    @property
    def exit_code(self) -> int:
        """0 all steps fit; 1 not so; 2 no forecast."""
        if self.error is not None:
            return 2
        return 0 if self.steps and not self.problems else 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON; seconds and bytes, of one device."""
        fields = asdict(self)
        for step, row in zip(self.steps, fields["steps"], strict=True):
            bounds = {"bound": step.bounds.seconds, "binding": step.bounds.binding}
            row |= {**bounds, "fits": step.fits, "to_fit": memory_advice(step, self.chip)}
        found: dict[str, Any] = finite(
            {"version": __version__, "label": self.label, "basis": BASIS, **fields,
             "exit_code": self.exit_code}
        )  # fmt: skip
        return found


def forecast(
    script: Path, arguments: Sequence[str], target: str, chip: Chip, **how: Any
) -> Forecast:
    """``how``: see RunOptions of `verify`."""
    steps: list[StepEstimate] = []
    count = chip.count

    seen: list[str] = []

    def read(report: TpuReport, ran: RuntimeReport, copy: Path, folders: Sequence[Path]) -> None:
        place = placed(folder_of(script), copy)
        seen.extend(seen_in_run(ran, place))
        steps.extend(_step(one, folders, chip, place) for one in report.compiled if one.is_step)

    devices = count * chip.devices if count > 1 else None
    result = verify_script(
        script, arguments, target, compile_for=f"{chip.name}-{count}", read_steps=read,
        devices=devices, **how,
    )  # fmt: skip
    found = without_twins(steps)
    return Forecast(
        str(script),
        chip,
        error=result.error,
        steps=found,
        advice=advice_for(found, chip),
        notes=[*result.notes, *_notes(result, found, chip), *seen],
        problems=[*_failed(result), *(_unfit(step) for step in found if not step.fits)],
        log_tail=result.log_tail,
        runtime=result.compiled,
    )


def _failed(result: VerifyResult) -> list[str]:
    """What is missing; what the compiler refused is said with its step."""
    if result.tpu is None:
        return result.problems
    refused = " does not compile for a "
    return [problem for problem in result.problems if refused not in problem]


def _unfit(step: StepEstimate) -> str:
    if step.error and not step.refused_for_memory:
        return f"{step.name} does not compile: {step.error}"
    return (
        f"{step.name} does not fit: it needs {gib(step.hbm)} of the {gib(step.capacity)} GiB that "
        "a device has"
    )


def _notes(result: VerifyResult, steps: list[StepEstimate], chip: Chip) -> list[str]:
    notes = []
    used, there = max((step.devices for step in steps), default=0), chip.count * chip.devices
    if 0 < used < there:
        how = "--shard, DistributedDataParallel or Accelerate make a program use more"
        notes.append(f"the steps use {used} of {there} devices, the others are idle: {how}")
    if result.in_parts:
        notes.append(
            f"not compiled as a whole, and so not in the forecast: {', '.join(result.in_parts)}"
        )
    for step in steps:
        if step.kernels:
            names = ", ".join(f"{name} {n}" for name, n in sorted(step.kernels.items()))
            notes.append(f"kernels in {step.name}, without their FLOPs: {names}")
        if step.estimate is None and not step.error:
            notes.append(
                f"the compiled text of {step.name} can't be read: its bounds count every product "
                "as bfloat16, and memory on the chip as HBM"
            )
    return notes


def seen_in_run(ran: RuntimeReport, place: Callable[[Cost], Cost]) -> Iterator[str]:
    """What the run itself did that costs time on a TPU, too."""
    for line in ran.recompiled:
        yield f"compiled again for other shapes or Python values: {line}"
    for read in ran.reads:
        times = "once" if read.times == 1 else f"{read.times} times"
        line = _original_line(read, place)
        yield (f"the host waits for values of the device: {line} ({times}, {read.bytes:,} bytes)")


def _original_line(read: HostRead, place: Callable[[Cost], Cost]) -> str:
    """Of the user's program; a library's line stays as it is."""
    number = read.line.split(":")[1]
    found = place(Cost("", f"{read.file}:{number}", "", 0, 0.0, 0.0, 0, 0.0))
    return f"{found.line}: {found.text}" if found.line else read.line


def figure(value: float) -> str:
    """Three digits of a small number, the whole part of a large one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def gib(size: float) -> str:
    return f"{size / 2**30:,.2f}"


def _step(
    one: Any, folders: Sequence[Path], chip: Chip, place: Callable[[Cost], Cost]
) -> StepEstimate:
    names = [folder / Path(one.file).with_suffix(".hlo").name for folder in folders]
    file = next((name for name in names if name.is_file()), None)
    program = parse(file.read_text("utf-8") if file is not None and not one.error else "")
    step = step_of(one, operations(program), chip)
    owners = file.with_suffix(".json") if file is not None else None
    parts = {}
    if program.entry and owners is not None and owners.is_file():
        parts = parts_of(program, json.loads(owners.read_text("utf-8")), step.memory)
    lines, found = [*map(place, step.lines)], [*map(place, step.operations)]
    return replace(step, parts=parts, lines=lines, operations=found)


def placed(source: Path, copy: Path) -> Callable[[Cost], Cost]:
    """Gives costs the lines of the original, which the migration may have moved."""
    known: dict[str, dict[int, int]] = {}

    def place(cost: Cost) -> Cost:
        name, _, number = cost.line.rpartition(":")
        if not name or not Path(name).is_relative_to(copy):
            return replace(cost, line="")
        file = Path(name).relative_to(copy)
        before = _lines(source / file)
        if name not in known:
            known[name] = _moved(before, _lines(Path(name)))
        line = known[name].get(int(number), int(number))
        text = before[line - 1].strip() if 0 < line <= len(before) else ""
        return replace(cost, line=f"{file.as_posix()}:{line}", text=text)

    return place


def _moved(before: list[str], after: list[str]) -> dict[int, int]:
    """The line of the original for each line of the result, counted from 1."""
    found: dict[int, int] = {}
    for _, i, j, k, n in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        found |= {k + at + 1: min(i + at, max(i, j - 1)) + 1 for at in range(n - k)}
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").split("\n")
    except OSError:
        return []


def priced(
    found: Forecast, steps: int, price: float | None, efficiency: float, epochs: int | None = None
) -> Forecast:
    """The same forecast with hours and money of its longest training step."""
    training = [step for step in found.steps if step.kind == "train" and not step.error]
    if not training:
        note = "no hours: no step that trains was compiled"
        return replace(found, notes=[*found.notes, note])
    step = max(training, key=lambda step: step.bounds.seconds)
    least = (epochs or 1) * steps * step.bounds.seconds / 3600
    hours = least / efficiency
    rate = None if price is None else price * found.chip.count
    return replace(
        found,
        price=Price(
            step.name, steps, epochs, efficiency, least, hours, price,
            None if rate is None else rate * least, None if rate is None else rate * hours,
        ),
    )  # fmt: skip
