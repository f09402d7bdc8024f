"""JAX's figures for this run: how many programs it compiled, and for how long; the outcome of each
training step and each class of modules; and the lines of the program that cost most.

TPU_RUNTIME_REPORT says where it is written when the process ends (`report_writing`). Without it,
one line says what compiles again and again, what isn't compiled, and what divides each step.
"""

import atexit
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

import jax

from ..compilation import lowering
from . import costly_lines, reads_in_steps
from .recompilation import CURE, MANY, SHOWN, WITHOUT_READS
from .report_writing import VARIABLE, write

_COMPILED = "/jax/core/compile/backend_compile_duration"
_figures: dict[str, Any] = {"programs": 0, "seconds": 0.0}


@dataclass
class Record:
    """The outcome for a step, or for the modules or optimizers of a class."""

    name: str
    calls: int = 0
    programs: int = 0
    again: int = 0  # those with shapes and arguments that had a program: something else changed
    why_eager: str = ""
    forms: int = 0  # sets of shapes and Python values of calls that ran operator by operator

    def slowness(self) -> str:
        """Why all of its calls, if they are many, ran operator by operator; "" if they didn't."""
        if self.calls < MANY or self.programs:
            return ""
        if self.why_eager:
            cure = f" ({WITHOUT_READS})" if "reads a value" in self.why_eager else ""
            return f"{self.name} is not compiled as a whole: {self.why_eager}{cure}"
        if self.forms >= MANY:
            return (
                f"{self.name} is not compiled: each call has other shapes or Python values ({CURE})"
            )
        return ""

    def __str__(self) -> str:
        parts = [_count_noun(self.calls, "call")]
        if self.programs:
            parts.append(_count_noun(self.programs, "program"))
        if self.again:
            parts.append(f"{self.again} for the same arguments as another")
        if self.why_eager:
            parts.append(f"not compiled as a whole: {self.why_eager}")
        elif self.forms > 1 and not self.programs:
            parts.append("not compiled: no call had the shapes and Python values of an earlier one")
        return f"{self.name}: {', '.join(parts)}"


_records: dict[str, Record] = {}


def record(name: str) -> Record:
    """The record with that name."""
    return _records.setdefault(name, Record(name))


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def install(env: object) -> None:
    """Count from here on."""
    where = os.environ.get(VARIABLE)
    if where == "0":
        return
    costly_lines.is_timed = bool(where)
    jax.monitoring.register_event_duration_secs_listener(_count)  # type: ignore[arg-type]
    atexit.register(finish)


def finish() -> None:
    """Write the report, or warn."""
    where = os.environ.get(VARIABLE)
    if where == "0":
        return
    if not where:
        _warn()
        return
    figures = collect()
    write(where, figures, describe(figures))


def _count(event: str, seconds: float, **_: Any) -> None:
    if event == _COMPILED:
        _figures["programs"] += 1
        _figures["seconds"] += seconds
        costly_lines.note_compilation(seconds, _calls())


def _calls() -> int:
    """How often models, optimizers and steps were called so far."""
    return sum(kept.calls for kept in _records.values())


def collect() -> dict[str, Any]:
    """The figures so far: ``programs`` compiled (or read from the cache) in ``seconds``, and the
    ``functions`` that were compiled, or weren't; the ``lines`` that cost most, and those whose
    ``reads`` the host waits for; the ``runs`` of programs that were written, by their files."""
    functions = [asdict(kept) for kept in _records.values()]
    again = costly_lines.compiled_again(_calls())
    lines = [
        {
            "line": str(line), "seconds": round(line.seconds, 1), "programs": line.programs,
            "runs": line.runs, "cure": CURE if line in again else "",
        }
        for line in costly_lines.costliest()
    ]  # fmt: skip
    reads = [
        {"line": str(line), "file": line.file, "times": line.reads, "bytes": line.read}
        for line in costly_lines.reading()
    ]
    seconds = round(_figures["seconds"], 1)
    figures = {**_figures, "seconds": seconds}
    shown = {"functions": functions, "lines": lines, "reads": reads, "runs": dict(lowering.runs)}
    return {**figures, **shown}


def describe(figures: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    total = f"{figures['programs']} programs compiled in {figures['seconds']} s"
    found = [total, *(str(Record(**kept)) for kept in figures["functions"] if kept["calls"])]
    found += ["the lines that took longest, with what was compiled there:"] * bool(figures["lines"])
    for line in figures["lines"]:
        counts = f"{_count_noun(line['programs'], 'program')}, {_count_noun(line['runs'], 'run')}"
        found.append(f"  {line['seconds']} s ({counts}) at {line['line']}")
        found += [f"    {line['cure']}"] if line["cure"] else []
    for read in figures["reads"]:
        times = _count_noun(read["times"], "time")
        found.append(f"read on the host, {times}, {read['bytes']:,} bytes: {read['line']}")
    divided = reads_in_steps.description()
    return [*found, divided] if divided else found


def _warn() -> None:
    """Say in one line what was slow, and at which lines, if anything was."""
    found = costly_lines.compiled_again(_calls())
    parts = []
    if found:
        where = "; ".join(f"{len(line.calls)} times at {line}" for line in found)
        parts.append(f"compiled again {where} ({CURE})")
    # A model and its parts may have one reason.
    slow = {kept.why_eager or kept.name: kept.slowness() for kept in reversed(_records.values())}
    parts += [text for text in reversed(slow.values()) if text][:SHOWN]
    if divided := reads_in_steps.description():
        parts.append(divided)
    if parts:
        print(f"tpu_runtime: {'; '.join(parts)}", file=sys.stderr)
