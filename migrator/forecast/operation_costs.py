"""What each operation of a compiled program costs: FLOPs, bytes of HBM, bytes exchanged."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .hlo import Computation, HloProgram, Instruction
from .products import Product, product_of

_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "add-dependency", "iota",
}  # fmt: skip
COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
)  # fmt: skip
_MOVES = ("copy", "transpose", "reshape", "slice", "concatenate", "pad")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# Devices that exchange with one another: as lists, as a count of groups and their size, or as axes
# of a mesh, `mesh['data'=2,'model'=4] {'model'}`.
_GROUP = re.compile(
    r"replica_groups=(?:\{\{([\d,]+)\}|\[(\d+),(\d+)\]|mesh\[([^\]]*)\][^{]*\{([^}]*)\})"
)
_AXIS = re.compile(r"'([^']+)'(?:=(\d+)|:\(\d+\)(\d+))?")
_KERNEL = 'custom_call_target="tpu_custom_call"'


@dataclass(frozen=True)
class Operation:
    """One instruction, on one device; all counts include its repetitions in loops."""

    name: str
    kind: str  # of what it mainly is: product, copy, kernel, a collective, wait, or other
    op_name: str
    line: str  # of the source
    times: int
    products: tuple[Product, ...] = ()
    bytes: int = 0  # read from and written to HBM
    exchanged: float = 0.0  # bytes sent
    cycles: int | None = None  # as the compiler estimates
    waits_for: str = ""  # the name of the collective, if it is the end of one

    @property
    def flops(self) -> float:
        return self.times * sum(product.flops for product in self.products)

    @property
    def label(self) -> str:
        """`module/operator`, and the largest product's shapes, or the kind of a collective."""
        parts = [part for part in self.op_name.split("/")[1:-1] if not part.startswith("jit(")]
        name = "/".join(parts).replace("aten::", "") or self.op_name.split("/")[-1] or self.name
        if self.kind in COLLECTIVES:
            return f"{self.kind} of {name}"
        if not self.products:
            return name
        return f"{name} {max(self.products, key=lambda p: p.flops).label}"


def operations(program: HloProgram) -> list[Operation]:
    """All operations that take time, in order."""
    if not program.entry:
        return []
    return list(_costs_of_computation(program, program.entry, 1))


def _costs_of_computation(program: HloProgram, computation: str, times: int) -> Iterator[Operation]:
    body = program.computations[computation]
    for made in body.values():
        match made.opcode:
            case "while":
                trips = _TRIPS.search(made.rest)
                again = times * int(trips[1]) if trips else times
                for name in made.called("body"):
                    yield from _costs_of_computation(program, name, again)
            case "conditional":
                branches = [
                    list(_costs_of_computation(program, b, times)) for b in _branches(program, made)
                ]
                yield from max(branches, key=lambda found: sum(o.bytes for o in found), default=[])
            case "call":
                for name in made.called("to_apply"):
                    yield from _costs_of_computation(program, name, times)
            case opcode if opcode.endswith("-done") and opcode.startswith(COLLECTIVES):
                yield Operation(made.name, "wait", "", "", times, waits_for=made.operands[0])
            case opcode if opcode in _FREE or opcode.endswith(("-done", "-update")):
                continue
            case _:
                yield _operation(program, body, made, times)


def _branches(program: HloProgram, made: Instruction) -> list[str]:
    names = made.called("branch_computations")
    names += re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", made.rest)
    return [name for name in names if name in program.computations]


def _operation(program: HloProgram, body: Computation, made: Instruction, times: int) -> Operation:
    inner = list(_inner(program, body, made))
    found = [(p, i) for where, i in inner if (p := product_of(i, where)) is not None]
    products = tuple(product for product, _ in found)
    # A fusion has the name of the last thing that it does.
    main = max(found, key=lambda pair: pair[0].flops)[1] if found else made
    source = main if main.frame else made
    collective = next((k for k in COLLECTIVES if made.opcode.startswith(k)), "")
    kernel = "kernel" if _KERNEL in made.rest else ""
    cycles = _CYCLES.search(made.rest)
    return Operation(
        made.name,
        collective or kernel or _kind(made, products, [i for _, i in inner]),
        main.op_name or made.op_name,
        program.lines.get(source.frame, ""),
        times,
        products,
        times * _accessed(program, body, made),
        times * _exchanged(made, body, collective) if collective else 0.0,
        times * int(cycles[1]) if cycles and int(cycles[1]) else None,
    )


def _inner(
    program: HloProgram, body: Computation, made: Instruction
) -> Iterator[tuple[Computation, Instruction]]:
    """The instructions of a fusion, or the instruction itself, with the computation of each."""
    if made.opcode != "fusion" and not made.opcode.endswith("-start"):
        yield body, made
    for name in made.called("calls"):
        inside = program.computations.get(name, {})
        for each in inside.values():
            yield from _inner(program, inside, each)


def _kind(made: Instruction, products: tuple[Product, ...], inner: list[Instruction]) -> str:
    if products:
        return "product"
    working = [i.opcode for i in inner if i.opcode not in _FREE]
    moved = (made.opcode, *working) if made.opcode != "fusion" else working
    if moved and all(opcode.removesuffix("-start") in _MOVES for opcode in moved):
        return "copy"
    return "other"


def _accessed(program: HloProgram, body: Computation, made: Instruction) -> int:
    """Bytes of HBM that it reads and writes; other memories are on the chip."""
    if made.opcode in ("copy-start", "slice-start"):  # its result names both ends
        ends = [shape for shape in made.shapes if shape.dims][:2]
        return min((s.padded for s in ends), default=0) * sum(s.space == 0 for s in ends)
    if made.opcode.endswith("-start"):
        source = [s for name in made.operands[:1] for s in body[name].shapes[:1] if name in body]
        moved = min((s.padded for s in (*made.shapes[:1], *source)), default=0)
        return moved * sum(s.space == 0 for s in (*made.shapes[:1], *source))
    reads = [_read(program, body, made, i) for i in range(len(made.operands))]
    return sum(reads) + _written(program, made, body)


def _read(program: HloProgram, body: Computation, made: Instruction, number: int) -> int:
    operand = body.get(made.operands[number])
    if operand is None or operand.opcode == "constant":
        return 0
    whole = sum(shape.padded for shape in operand.shapes if shape.space == 0)
    if made.opcode in ("dynamic-slice", "gather", "slice") and number == 0:
        return min(whole, _outputs(made))
    if made.opcode == "dynamic-update-slice" and number == 0:
        return 0
    if made.opcode == "fusion":
        part = _read_inside(program, made.called("calls")[0], number)
        return whole if part is None else min(whole, part)
    return whole


def _read_inside(program: HloProgram, computation: str, number: int) -> int | None:
    """The bytes of a fusion's parameter that are read, if only slices of it are."""
    inside = program.computations[computation]
    parameter = next(i for i in inside.values() if i.parameter == number)
    total = 0
    for user in inside.values():
        if parameter.name not in user.operands:
            continue
        at = user.operands.index(parameter.name)
        if user.opcode in ("dynamic-slice", "gather", "slice") and at == 0:
            total += _outputs(user)
        elif user.opcode == "dynamic-update-slice" and at == 0:
            continue
        elif user.opcode == "fusion":
            part = _read_inside(program, user.called("calls")[0], at)
            if part is None:
                return None
            total += part
        else:
            return None
    return total


def _written(program: HloProgram, made: Instruction, body: Computation) -> int:
    root, inside = made, body
    while root.opcode == "fusion":
        name = root.called("calls")[0]
        root, inside = program.root(name), program.computations[name]
    if root.opcode == "dynamic-update-slice" and len(root.operands) > 1:  # in place
        update = inside.get(root.operands[1])
        if update is not None and all(shape.space == 0 for shape in made.shapes):
            return sum(shape.padded for shape in update.shapes)
    return _outputs(made)


def _outputs(made: Instruction) -> int:
    return sum(shape.padded for shape in made.shapes if shape.space == 0)


def _exchanged(made: Instruction, body: Computation, kind: str) -> float:
    """Bytes that a device sends, at least: in a ring over all devices of a group."""
    count = _group_size(made.rest)
    if count < 2 and kind != "collective-permute":
        return 0.0
    given = sum(s.size for name in made.operands if name in body for s in body[name].shapes)
    share = (count - 1) / count if count else 1.0
    match kind:
        case "all-reduce":
            return 2 * share * given
        case "all-gather":
            return (count - 1) * given
        case "collective-permute":
            return float(given)
    return share * given


def _group_size(text: str) -> int:
    """How many devices exchange with one another; 0 if the text doesn't say."""
    found = _GROUP.search(text)
    if not found:
        return 0
    listed, _, size, mesh, axes = found.groups()
    if listed:
        return len(listed.split(","))
    if size:
        return int(size)
    sizes = {name: int(whole) for name, whole, _ in _AXIS.findall(mesh)}
    return math.prod(int(part) if part else sizes[name] for name, _, part in _AXIS.findall(axes))
