"""Values that are read in the middle of each step, which divide it into more programs."""

import linecache
from collections import Counter
from pathlib import Path
from types import CodeType

from .recompilation import MANY, SHOWN

Place = tuple[CodeType, int]  # an instruction, by its offset in bytes
_FEW = 1  # a step that reads one value is two programs
_now: Counter[Place] = Counter()  # reads since the last step ended
_reads: Counter[int] = Counter()  # how many steps have so many
_places: Counter[Place] = Counter()  # how many of those with more than a few have a read there


def line_at(code: CodeType, instruction: int) -> str:
    """The line of an instruction, by its offset in bytes."""
    file, number = code.co_filename, [*code.co_positions()][instruction // 2][0]
    line = linecache.getline(file, number or 0).strip()
    return f"{Path(file).name}:{number}: {line}"


def note_read(place: Place | None) -> None:
    """A value is read here, before the step ends: what was recorded runs as a program."""
    if place is not None:
        _now[place] += 1


def note_step() -> None:
    """An optimizer has made its step."""
    number = _now.total()
    _reads[number] += 1
    if number > _FEW:
        _places.update(_now.keys())
    _now.clear()


def description() -> str:
    """Which lines divide most steps, and what helps; "" if they don't."""
    steps = _reads.total()
    divided = sum(number for reads, number in _reads.items() if reads > _FEW)
    if steps < MANY or divided <= steps / 2:
        return ""
    usual = max((reads for reads in _reads if reads > _FEW), key=lambda reads: _reads[reads])
    found = [place for place, number in _places.most_common(SHOWN) if number > divided / 2]
    if not found:
        return ""
    lines = "; ".join(line_at(*place) for place in found)
    return (
        f"{usual} values are read before each step ends, which divides it into {usual + 1} "
        f"programs, at {lines} (read them after the step, or every N steps; a condition: "
        "torch.where)"
    )
