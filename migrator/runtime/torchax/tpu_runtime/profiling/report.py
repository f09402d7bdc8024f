"""JAX's figures for this run: how many programs it compiled, and for how long; and the outcome of
each training step and each class of modules.

With TPU_RUNTIME_REPORT=1 it is written to standard error when the program ends; any other value is
the name of a JSON file to write.
"""

import atexit
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

VARIABLE = "TPU_RUNTIME_REPORT"
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

    def __str__(self) -> str:
        parts = [_counted(self.calls, "call")]
        if self.programs:
            parts.append(_counted(self.programs, "program"))
        if self.again:
            parts.append(f"{self.again} for the same arguments as another")
        if self.why_eager:
            parts.append(f"not compiled as a whole: {self.why_eager}")
        return f"{self.name}: {', '.join(parts)}"


_records: dict[str, Record] = {}


def record(name: str) -> Record:
    """The record with that name."""
    return _records.setdefault(name, Record(name))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def install(env: object) -> None:
    """Count from here on, if a report is requested."""
    where = os.environ.get(VARIABLE)
    if where:
        jax.monitoring.register_event_duration_secs_listener(_count)
        atexit.register(_write, where)


def _count(event: str, seconds: float, **_: Any) -> None:
    if event == _COMPILED:
        _figures["programs"] += 1
        _figures["seconds"] += seconds


def collect() -> dict[str, Any]:
    """The figures so far: ``programs`` compiled (or read from the cache) in ``seconds``, and the
    ``functions`` that were compiled, or weren't."""
    functions = [asdict(kept) for kept in _records.values()]
    return {**_figures, "seconds": round(_figures["seconds"], 1), "functions": functions}


def describe(figures: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    total = f"{figures['programs']} programs compiled in {figures['seconds']} s"
    return [total, *(str(Record(**kept)) for kept in figures["functions"] if kept["calls"])]


def _write(where: str) -> None:
    figures = collect()
    lines = describe(figures)
    if where == "1":
        print("\n".join(f"tpu_runtime: {line}" for line in lines), file=sys.stderr)
    else:
        figures["text"] = "\n".join(lines)
        Path(where).write_text(json.dumps(figures), encoding="utf-8")
