"""The lines of the program at which its programs were compiled, and which compile again and again.

JAX reports each compilation in the thread that waits for it, so the program's own line is found
on the stack. A line that still compiles in later calls has a shape or a Python value that changes.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compilation.program_code import caller
from .reads_in_steps import line_at
from .recompilation import MANY, SHOWN


@dataclass
class Line:
    """A line of the program: what was compiled and run there.

    ``seconds``: of compiling, or, if runs are timed, of all that was computed there. ``calls``:
    the numbers of the calls of models, optimizers and steps in which something was compiled.
    ``reads``: how often values of the device were read on the host, ``read``: their bytes.
    """

    text: str  # with the file's name and the number
    file: str  # with its folder
    programs: int = 0
    runs: int = 0
    seconds: float = 0.0
    reads: int = 0
    read: int = 0
    calls: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return self.text


_lines: dict[tuple[str, str], Line] = {}  # by text and file


def _line() -> Line | None:
    """The innermost line of the program's own code; None in a thread of a library."""
    place = caller()
    if place is None:
        return None
    text, file = line_at(*place), str(Path(place[0].co_filename).absolute())
    return _lines.setdefault((text, file), Line(text, file))


def note_compilation(seconds: float, call: int) -> None:
    """A program was compiled in so many seconds, in the call with this number."""
    line = _line()
    if line is not None:
        line.programs += 1
        line.seconds += seconds
        line.calls.add(call)


is_timed = False  # whether runs are counted


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Count what runs as the work of the program's line."""
    line = _line() if is_timed else None
    if line is None:
        yield
        return
    before, start = line.seconds, time.perf_counter()
    try:
        yield
    finally:
        line.runs += 1
        line.seconds = before + time.perf_counter() - start


def note_read(tensor: Any) -> None:
    """A tensor of the device is read on the host, which waits for it."""
    line = _line() if is_timed else None
    if line is not None:
        line.reads += 1
        line.read += math.prod(tensor.shape) * tensor.dtype.itemsize


def reading() -> list[Line]:
    """The lines that read most on the host, the largest first."""
    found = [line for line in _lines.values() if line.reads]
    return sorted(found, key=lambda line: (-line.read, -line.reads))[:SHOWN]


def costliest() -> list[Line]:
    """The lines that took longest, the longest first."""
    found = [line for line in _lines.values() if line.programs or line.runs]
    return sorted(found, key=lambda line: -line.seconds)[:SHOWN]


def compiled_again(calls: int) -> list[Line]:
    """The lines that still compile in the later half of so many calls, the most often first."""
    found = [a for a in _lines.values() if len(a.calls) >= MANY and max(a.calls) > calls / 2]
    return sorted(found, key=lambda line: -len(line.calls))[:SHOWN]
