"""Where the report of a process goes: each rank writes its own.

With TPU_RUNTIME_REPORT=1 a report is written to standard error when the process ends, with the rank
in front of each line. Any other value is the name of a JSON file: ``report.json`` gets the report
of a program that is one process, or that starts the ranks, and ``report.rank0.json`` that of a
rank. With 0, nothing is written.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "TPU_RUNTIME_REPORT"
_rank: int | None = None


def note_rank(rank: int) -> None:
    """Say that this process is a rank."""
    global _rank
    _rank = rank


def process_name() -> str:
    """``rank0`` for a rank, ``SpawnProcess-1`` for a process that the program has started, ``""``
    for the program itself."""
    if _rank is not None:
        return f"rank{_rank}"
    started = multiprocessing.parent_process() is not None
    return multiprocessing.current_process().name if started else ""


def write(where: str, figures: Mapping[str, object], lines: Sequence[str]) -> None:
    """Write a report to ``where``, the variable's value.

    A process that isn't a rank and compiled nothing, such as one that loads data, writes none.

    Args:
        figures: What a file gets, with the number of ``programs``.
        lines: The same as text.
    """
    name = process_name()
    if name and _rank is None and not figures["programs"]:
        return
    if where == "1":
        front = f"tpu_runtime: {name}: " if name else "tpu_runtime: "
        print("\n".join(front + line for line in lines), file=sys.stderr)
        return
    file = Path(where)
    if name:
        file = file.with_name(f"{file.stem}.{name}{file.suffix}")
    file.write_text(json.dumps({**figures, "text": "\n".join(lines)}), encoding="utf-8")
