"""The forecast of a step: lower bounds of its time, what binds it, and its memory."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from migrator.verify.chips import Chip
from migrator.verify.tpu import CompiledForTpu

from .operation_costs import COLLECTIVES, Operation
from .products import is_attention

MATRIX, HBM, ICI = "matrix units", "HBM", "interconnect"
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT])")
# The cost model's cycles for what is no product are too many: a copy of 33.6 MB on a v6e has
# 178,016, 89.5 µs, where Google publishes 49.4 µs (benchmarks/forecasts.py).
_CYCLES_OF_OTHERS = 1.8
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Bounds:
    """Seconds that a chip's parts need at the rates of its data sheet."""

    matrix: float = 0.0
    hbm: float = 0.0
    interconnect: float = 0.0

    @property
    def seconds(self) -> float:
        """The least possible: all at the same time."""
        return max(self.matrix, self.hbm, self.interconnect)

    @property
    def binding(self) -> str:
        parts = ((self.matrix, MATRIX), (self.hbm, HBM), (self.interconnect, ICI))
        return max(parts)[1] if self.seconds else ""


@dataclass(frozen=True)
class Cost:
    """Operations that belong together: of one kind and name, or of one line of the source."""

    name: str
    line: str
    kind: str
    count: int
    seconds: float  # by the compiler's estimate, otherwise the bound
    flops: float
    bytes: int
    padding: float  # seconds in which matrix units multiply padding
    text: str = ""  # of the line


@dataclass(frozen=True)
class StepEstimate:
    """A compiled step, on one device. Bytes, FLOPs and estimates are the compiler's."""

    name: str
    kind: str  # train: it overwrites what it gets; otherwise forward
    devices: int
    memory: dict[str, int]
    hbm: int  # bytes needed
    capacity: int
    flops: float
    accessed: int
    bounds: Bounds
    bfloat16: Bounds  # if its float32 products were bfloat16
    estimate: float | None  # seconds; None without the compiled text
    padding: float  # seconds
    copies: float  # seconds
    collectives: dict[str, float]  # seconds by kind
    exposed: float  # seconds of collectives that nothing hides, of the estimate
    kernels: dict[str, int]  # whose FLOPs are not known
    parts: dict[str, int] = field(default_factory=dict)  # of its memory; empty where not known
    lines: list[Cost] = field(default_factory=list)
    operations: list[Cost] = field(default_factory=list)
    also: list[str] = field(default_factory=list)  # programs like it
    error: str | None = None

    @property
    def fits(self) -> bool:
        return self.error is None and self.hbm <= self.capacity

    @property
    def shown(self) -> dict[str, int]:
        """The parts of its memory as they are shown."""
        return self.parts or self.memory

    @property
    def refused_for_memory(self) -> bool:
        return self.error is not None and "memory" in self.error.lower()


def bounds_of(operations: Iterable[Operation], chip: Chip, passes: int | None = None) -> Bounds:
    """``passes``: of all products, instead of those that they have."""
    matrix = hbm = interconnect = 0.0
    for each in operations:
        matrix += _matrix(each, chip, passes)
        hbm += each.bytes / (chip.hbm_bandwidth / chip.devices)
        interconnect += _exchange(each, chip)
    return Bounds(matrix, hbm, interconnect)


def _exchange(operation: Operation, chip: Chip) -> float:
    if not operation.exchanged:
        return 0.0
    return operation.exchanged / (chip.sends / chip.devices)


def _matrix(operation: Operation, chip: Chip, passes: int | None = None) -> float:
    work = sum(p.flops * min(p.passes, passes or p.passes) for p in operation.products)
    return operation.times * work / (chip.peak / chip.devices)


def seconds_of(operation: Operation, chip: Chip) -> float:
    """The compiler's estimate, otherwise the bound; never below that of matrix units, or of HBM.

    What has a start runs beside other operations: copies, and collectives (see `timed`).
    """
    if operation.cycles is not None:
        cycles = operation.cycles if operation.products else operation.cycles / _CYCLES_OF_OTHERS
        bounds = bounds_of([operation], chip)
        return max(cycles / chip.cycles, bounds.matrix if operation.products else bounds.hbm)
    if "-start" in operation.name:
        return 0.0
    # A kernel has no estimate: its products take the time of their padding, too.
    bounds = bounds_of([operation], chip)
    padded = bounds.matrix + padding_of(operation, chip)
    return max(padded, bounds.hbm, bounds.interconnect)


def timed(operations: Iterable[Operation], chip: Chip) -> list[tuple[Operation, float]]:
    """Operations in the compiler's order, with seconds.

    A collective that has a start takes those that its end waits for, which nothing hides.
    """
    now = 0.0
    starts: dict[str, Operation] = {}
    ends: dict[str, float] = {}
    found: list[tuple[Operation, float]] = []
    for each in operations:
        if each.kind == "wait":
            if each.waits_for in ends:
                wait = max(0.0, ends[each.waits_for] - now)
                now += wait
                found.append((starts[each.waits_for], wait * each.times))
            continue
        seconds = seconds_of(each, chip)
        if each.kind in COLLECTIVES and "-start" in each.name:
            starts[each.name], ends[each.name] = each, now + _alone(each, chip) / each.times
        else:
            now += seconds / each.times
            found.append((each, seconds))
    return found


def exposed_of(found: Iterable[tuple[Operation, float]]) -> float:
    """Seconds of collectives that nothing hides."""
    return sum(seconds for each, seconds in found if each.kind in COLLECTIVES)


def _alone(operation: Operation, chip: Chip) -> float:
    """Seconds of a collective; one that permutes has a single neighbour to send to."""
    if operation.kind == "collective-permute":
        return operation.exchanged / (chip.ici_bandwidth / 2 / chip.links / chip.devices)
    return _exchange(operation, chip)


def padding_of(operation: Operation, chip: Chip) -> float:
    """Seconds by which products take longer, because their sizes don't fill the matrix units."""
    lost = sum(p.flops * p.passes * (1 / p.filled(chip.mxu) - 1) for p in operation.products)
    return operation.times * lost / (chip.peak / chip.devices)


def step_of(compiled: CompiledForTpu, operations: Sequence[Operation], chip: Chip) -> StepEstimate:
    """``operations``: of the compiled text; empty if there is none."""
    found = timed(operations, chip)
    bounds = bounds_of(operations, chip) if operations else _by_cost_analysis(compiled, chip)
    needed, capacity = compiled.hbm, chip.hbm // chip.devices
    if compiled.error and (used := _USED.search(compiled.error)):
        needed = round(float(used[1]) * _UNITS[used[2]])
    return StepEstimate(
        name=compiled.name,
        kind="train" if compiled.in_place else "forward",
        devices=compiled.devices,
        memory={
            "arguments": compiled.arguments,
            "outputs": compiled.outputs - compiled.in_place,
            "temporaries": compiled.temporaries,
            "code": compiled.code,
        },
        hbm=needed,
        capacity=capacity,
        flops=sum(each.flops for each in operations) or compiled.flops,
        accessed=sum(each.bytes for each in operations) or int(compiled.accessed),
        bounds=bounds,
        bfloat16=bounds_of(operations, chip, passes=1) if operations else bounds,
        estimate=max(bounds.seconds, sum(s for _, s in found)) if operations else None,
        padding=sum(padding_of(each, chip) for each in operations),
        copies=sum(seconds for each, seconds in found if each.kind == "copy"),
        collectives=_collectives(operations, chip),
        exposed=exposed_of(found),
        kernels={n: times for n, times in compiled.kernels.items() if not is_attention(n)},
        lines=_costs(found, chip, by_line=True),
        operations=_costs(found, chip, by_line=False),
        error=compiled.error,
    )


def _by_cost_analysis(compiled: CompiledForTpu, chip: Chip) -> Bounds:
    """Without the text: all bytes are counted as HBM's, and all products as bfloat16."""
    return Bounds(
        compiled.flops / (chip.peak / chip.devices),
        compiled.accessed / (chip.hbm_bandwidth / chip.devices),
    )


def _collectives(operations: Iterable[Operation], chip: Chip) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for each in operations:
        if each.kind in COLLECTIVES:
            found[each.kind] += _exchange(each, chip)
    return dict(found)


def _costs(found: list[tuple[Operation, float]], chip: Chip, by_line: bool) -> list[Cost]:
    """The most expensive first."""
    groups: dict[tuple[str, str], list[tuple[Operation, float]]] = defaultdict(list)
    for each, seconds in found:
        groups[("" if by_line else each.label, each.line)].append((each, seconds))
    costs = [_cost(name, line, group, chip) for (name, line), group in groups.items()]
    return sorted(costs, key=lambda cost: -cost.seconds)[:10]


def _cost(name: str, line: str, group: list[tuple[Operation, float]], chip: Chip) -> Cost:
    longest = max(group, key=lambda pair: pair[1])[0]
    return Cost(
        name or longest.label,
        line,
        longest.kind,
        sum(each.times for each, _ in group),
        sum(seconds for _, seconds in group),
        sum(each.flops for each, _ in group),
        sum(each.bytes for each, _ in group),
        sum(padding_of(each, chip) for each, _ in group),
    )


def without_twins(steps: Iterable[StepEstimate]) -> list[StepEstimate]:
    """The longest first; a program that costs the same as another is only named."""
    kept: dict[object, StepEstimate] = {}
    for step in steps:
        key = (step.kind, step.devices, step.flops, step.accessed, step.hbm, step.error)
        other = kept.get(key)
        kept[key] = replace(other, also=[*other.also, step.name]) if other else step
    return sorted(kept.values(), key=lambda step: (step.fits, -step.bounds.seconds))
