"""The programs of a training run that it repeats: only these need a forecast.

The first step of many runs operator by operator, and so in programs of its own, which are as large
as those of later steps, and take the TPU's compiler as long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .tpu import DumpedProgram

_WITHOUT_MODEL = "step"  # the name of programs of operators


def repeated(
    programs: Sequence[DumpedProgram], runs: Mapping[str, int]
) -> tuple[list[DumpedProgram], list[DumpedProgram]]:
    """The programs to compile, and those that are left out.

    Where a program that trains ran again, those that ran once are left out if they train, too, or
    are of operators: an evaluation's model is not. ``runs``: by the names of files.
    """
    trains = {p.path: _trains(p) for p in programs if p.path.name in runs}
    if not any(trains.get(p.path) and runs[p.path.name] > 1 for p in programs):
        return [*programs], []
    left_out = [
        program
        for program in programs
        if runs.get(program.path.name) == 1
        and (trains[program.path] or program.name.partition(" (")[0] == _WITHOUT_MODEL)
    ]
    return [program for program in programs if program not in left_out], left_out


def _trains(program: DumpedProgram) -> bool:
    """Whether it gives new weights, as the runtime has written beside it."""
    try:
        owners = json.loads(program.path.with_suffix(".json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return "weights" in owners["results"]
