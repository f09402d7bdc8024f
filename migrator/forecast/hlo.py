"""Reads the text of a compiled program: instructions, shapes as they lie in memory, and places."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "f16": 16, "bf16": 16,
    "s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_TILE = re.compile(r"T\(([\d,]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
# In the first line: `{3}: (7, {}, may-alias)`, result 3 in the memory of parameter 7.
_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}, (?:may|must)-alias\)")
_ROW = re.compile(r"(\d+) (?:\"(.*)\"|\{(.*)\})$")


@dataclass(frozen=True)
class Shape:
    """An array; ``space`` is 0 for HBM."""

    dtype: str
    dims: tuple[int, ...]
    order: tuple[int, ...] = ()  # of the dimensions in memory, the innermost first
    tile: tuple[int, ...] = ()
    space: int = 0

    @property
    def size(self) -> int:
        """Bytes without padding."""
        return math.prod(self.dims) * _BITS.get(self.dtype, 0) // 8

    @property
    def padded(self) -> int:
        """Bytes in memory: the innermost dimensions fill whole tiles."""
        if not self.tile or len(self.order) != len(self.dims):
            return self.size
        inner = [self.dims[i] for i in self.order]
        for i, tile in enumerate(reversed(self.tile[-len(inner) :] if inner else ())):
            inner[i] = -(-inner[i] // tile) * tile
        return math.prod(inner) * _BITS.get(self.dtype, 0) // 8

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass
class Instruction:
    """``operands`` are names in the same computation; ``rest`` is the text behind them."""

    name: str
    opcode: str
    shapes: list[Shape]
    operands: list[str]
    rest: str
    is_root: bool = False
    parameter: int | None = None  # its number, if it is one

    @property
    def op_name(self) -> str:
        found = _OP_NAME.search(self.rest)
        return found[1] if found else ""

    @property
    def frame(self) -> int:
        found = _FRAME.search(self.rest)
        return int(found[1]) if found else 0

    def called(self, *kinds: str) -> list[str]:
        """The computations that it calls by these attributes (all, without any)."""
        found = [match for match in _CALLED.finditer(self.rest) if not kinds or match[1] in kinds]
        return [name for match in found for name in re.findall(r"[\w.\-]+", match[2])]


Computation = dict[str, Instruction]  # by name, in order


@dataclass
class HloProgram:
    """The computations of a module, and the source lines of its frames: `file:line`."""

    computations: dict[str, Computation] = field(default_factory=dict)
    entry: str = ""
    in_place: dict[int, int] = field(default_factory=dict)  # results by the parameters they replace
    lines: dict[int, str] = field(default_factory=dict)

    def root(self, computation: str) -> Instruction:
        body = self.computations[computation]
        return next(i for i in body.values() if i.is_root)


def shapes_of(text: str) -> list[Shape]:
    return [_shape(match) for match in _SHAPE.finditer(text) if match[1] in _BITS]


def _shape(match: re.Match[str]) -> Shape:
    layout = match[4] or ""
    tile, space = _TILE.search(layout), _SPACE.search(layout)
    return Shape(
        match[1], _numbers(match[2]), _numbers(match[3] or ""),
        _numbers(tile[1]) if tile else (), int(space[1]) if space else 0,
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def parse(text: str) -> HloProgram:
    """The program of a compiled module's text."""
    aliases = _ALIAS.findall(text.partition("\n")[0])
    program, body = HloProgram(in_place={int(p): int(r or 0) for r, p in aliases}), None
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] | None = None
    for line in text.splitlines():
        if line in ("FileNames", "FileLocations", "StackFrames", "FunctionNames"):
            table = tables.setdefault(line, {})
        elif table is not None and (row := _ROW.match(line)):
            table[int(row[1])] = row[2] or row[3] or ""
        elif found := _COMPUTATION.match(line):
            table = None
            body = program.computations.setdefault(found[2], {})
            program.entry = found[2] if found[1] else program.entry
        elif body is not None and (made := _instruction(line)):
            body[made.name] = made
    program.lines = dict(_lines(tables))
    return program


def _lines(tables: dict[str, dict[int, str]]) -> Iterator[tuple[int, str]]:
    places = tables.get("FileLocations", {})
    for frame, text in tables.get("StackFrames", {}).items():
        place = places.get(_field(text, "file_location_id"), "")
        if name := tables.get("FileNames", {}).get(_field(place, "file_name_id")):
            yield frame, f"{name}:{_field(place, 'line')}"


def _field(text: str, name: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", text)
    return int(found[1]) if found else 0


def _instruction(line: str) -> Instruction | None:
    start = _INSTRUCTION.match(line)
    if start is None:
        return None
    at = start.end()
    end = _closed(line, at) if line[at] == "(" else line.find(" ", at)
    opening = line.find("(", end)
    if end < 0 or opening < 0:
        return None
    closing = _closed(line, opening)
    operands = re.findall(r"%([\w.\-]+)", line[opening:closing])
    opcode = line[end:opening].strip()
    shapes = shapes_of(line[at:end])
    number = int(line[opening + 1 : closing - 1]) if opcode == "parameter" else None
    return Instruction(start[2], opcode, shapes, operands, line[closing:], bool(start[1]), number)


def _closed(line: str, at: int) -> int:
    """The end of the parentheses that open at ``at``."""
    depth = 0
    for i in range(at, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if not depth:
            return i + 1
    return len(line)
