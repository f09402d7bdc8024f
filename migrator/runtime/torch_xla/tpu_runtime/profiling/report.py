"""torch_xla's figures for this run: programs compiled, executions, operators run on the CPU.

With TPU_RUNTIME_REPORT=1 a line is written to standard error when the program ends; any other
value is the name of a JSON file to write.
"""

import atexit
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch_xla
import torch_xla.debug.metrics as metrics

VARIABLE = "TPU_RUNTIME_REPORT"
# Steps so far, the last one that compiled something, and the count of compilations until then.
_steps = {"all": 0, "compiled": 0, "programs": 0}


def install() -> None:
    """Count from here on, if a report is requested."""
    where = os.environ.get(VARIABLE)
    if not where:
        return
    sync = torch_xla.sync

    @functools.wraps(sync)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = sync(*args, **kwargs)
        _steps["all"] += 1
        if _compiled() > _steps["programs"]:
            _steps["compiled"], _steps["programs"] = _steps["all"], _compiled()
        return result

    torch_xla.sync = counted
    atexit.register(_write, where)


def _compiled() -> int:
    data = metrics.metric_data("CompileTime")
    return int(data[0]) if data else 0


def collect() -> dict[str, Any]:
    """The figures so far.

    ``programs`` compiled in ``seconds``, ``executions``, ``steps`` (calls of ``torch_xla.sync``),
    ``last_compiled``: the last step that compiled (0: none), ``on_cpu``: how often each operator
    ran on the CPU, tensors copied there and back.
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
    }


def describe(figures: dict[str, Any]) -> str:
    """The figures in a line, with their meaning."""
    steps, last = figures["steps"], figures["last_compiled"]
    text = f"{figures['programs']} programs compiled in {figures['seconds']} s"
    if steps:
        text += f", the last in step {last} of {steps}"
        if figures["programs"] > max(10, steps // 3):
            text += " (shapes or Python numbers that change compile again: pad, or drop_last=True)"
    if figures["on_cpu"]:
        counts = ", ".join(f"{name} {n} times" for name, n in figures["on_cpu"].items())
        text += f"; on the CPU: {counts}"
    return text


def _write(where: str) -> None:
    figures = collect()
    if where == "1":
        print(f"tpu_runtime: {describe(figures)}", file=sys.stderr)
    else:
        Path(where).write_text(json.dumps(figures | {"text": describe(figures)}), encoding="utf-8")
