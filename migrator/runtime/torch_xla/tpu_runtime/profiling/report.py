"""torch_xla's figures for this run: programs compiled, executions, operators run on the CPU.

TPU_RUNTIME_REPORT says where they are written when the process ends (`report_writing`), with the
lines of the program at which most was compiled. Without it, one line says so if steps compile again
and again, or are divided by reads.
"""

import atexit
import functools
import linecache
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch_xla
import torch_xla.debug.metrics as metrics

from . import reads_in_steps
from .recompilation import CURE, MANY, SHOWN
from .report_writing import VARIABLE, write

_PREFIX = "tpu_runtime-"  # of the files in which torch_xla says where it compiles
# Steps so far, how many and which one at last compiled something, and the compilations until then.
_steps = {"all": 0, "compiling": 0, "compiled": 0, "programs": 0}


def install() -> None:
    """Count from here on."""
    where = os.environ.get(VARIABLE)
    if where == "0":
        return
    if where:
        _note_lines()
    sync = torch_xla.sync

    @functools.wraps(sync)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = sync(*args, **kwargs)
        _steps["all"] += 1
        reads_in_steps.note_step()
        if _compiled() > _steps["programs"]:
            _steps["compiling"] += 1
            _steps["compiled"], _steps["programs"] = _steps["all"], _compiled()
        return result

    torch_xla.sync = counted
    atexit.register(_write, where) if where else atexit.register(_warn)


def _note_lines() -> None:
    """Let torch_xla write where it compiles; it asks for these variables at the first graph. Of the
    processes of a host, only the first writes."""
    file = os.environ.get("PT_XLA_DEBUG_FILE", "")
    is_own = Path(file).name.startswith(_PREFIX)  # of the process that started this one
    if is_own or ("PT_XLA_DEBUG_LEVEL" not in os.environ and not file):
        handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=".txt")
        os.close(handle)
        os.environ |= {"PT_XLA_DEBUG_LEVEL": "1", "PT_XLA_DEBUG_FILE": name}
        _notes.append(Path(name))


_notes: list[Path] = []


_FRAMES = re.compile(r"Triggered Execution: \n((?:.*Analysis:   .*\n)+)")
_FRAME = re.compile(r"\((.+):(\d+)\)$", re.MULTILINE)


def _lines() -> list[dict[str, Any]]:
    """The program's lines at which most was compiled."""
    text = "".join(notes.read_text(encoding="utf-8", errors="replace") for notes in _notes)
    while _notes:
        _notes.pop().unlink()
    counts = Counter(
        line for frames in _FRAMES.findall(text) if (line := _own_line(_FRAME.findall(frames)))
    )
    return [{"line": line, "programs": count} for line, count in counts.most_common(SHOWN)]


_LIBRARIES = tuple(
    str(path) + os.sep
    for path in (
        *(Path(m.__file__ or "").parent for m in (torch, torch_xla)),
        Path(__file__).parents[1],
    )
)


def _own_line(frames: list[tuple[str, str]]) -> str:
    """The innermost one that isn't of a library."""
    for file, number in frames:
        if not file.startswith((*_LIBRARIES, "<")):
            return f"{Path(file).name}:{number}: {linecache.getline(file, int(number)).strip()}"
    return ""


def _compiled() -> int:
    data = metrics.metric_data("CompileTime")
    return int(data[0]) if data else 0


def collect() -> dict[str, Any]:
    """The figures so far.

    ``programs`` compiled in ``seconds``, ``executions``, ``steps`` (calls of ``torch_xla.sync``),
    ``last_compiled``: the last step that compiled (0: none), ``on_cpu``: how often each operator
    ran on the CPU, tensors copied there and back, ``lines`` at which most was compiled.
    """
    compiled = metrics.metric_data("CompileTime")
    executed = metrics.metric_data("ExecuteTime")
    return {
        "programs": _compiled(),
        "seconds": round(compiled[1] / 1e9, 1) if compiled else 0.0,
        "executions": int(executed[0]) if executed else 0,
        "steps": _steps["all"],
        "last_compiled": _steps["compiled"],
        "on_cpu": {
            name: metrics.counter_value(name)
            for name in metrics.counter_names()
            if name.startswith("aten::") and name != "aten::_local_scalar_dense"
        },
        "lines": _lines(),
    }


def describe(figures: dict[str, Any]) -> str:
    """The figures as text, with their meaning."""
    steps, last = figures["steps"], figures["last_compiled"]
    text = f"{figures['programs']} programs compiled in {figures['seconds']} s"
    if steps:
        text += f", the last in step {last} of {steps}"
        if _compile_again():
            text += f" ({CURE})"
    if figures["on_cpu"]:
        counts = ", ".join(f"{name} {n} times" for name, n in figures["on_cpu"].items())
        text += f"; on the CPU: {counts}"
    divided = reads_in_steps.description()
    lines = [f"{line['programs']} compiled at {line['line']}" for line in figures["lines"]]
    return "\n".join([text, *lines, *[divided] * bool(divided)])


def _compile_again() -> bool:
    """Whether steps still compile in the later half of the run."""
    return _steps["compiling"] >= MANY and _steps["compiled"] > _steps["all"] / 2


def _warn() -> None:
    """Say in one line what was slow, and at which lines, if anything was."""
    parts = []
    if _compile_again():
        parts.append(
            f"{_steps['compiling']} of {_steps['all']} steps were compiled, the last is "
            f"{_steps['compiled']} ({CURE}); {VARIABLE}=1 names the lines"
        )
    if divided := reads_in_steps.description():
        parts.append(divided)
    if parts:
        print(f"tpu_runtime: {'; '.join(parts)}", file=sys.stderr)


def _write(where: str) -> None:
    figures = collect()
    write(where, figures, describe(figures).splitlines())
