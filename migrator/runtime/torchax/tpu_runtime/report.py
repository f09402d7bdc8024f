"""What JAX did in this run: how many programs it compiled, and for how long.

With TPU_RUNTIME_REPORT=1 a line goes to standard error when the program ends; any other value is
the name of a JSON file to write.
"""

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax

VARIABLE = "TPU_RUNTIME_REPORT"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_figures: dict[str, Any] = {"programs": 0, "seconds": 0.0}


def install() -> None:
    """Count from here on, if a report is asked for."""
    where = os.environ.get(VARIABLE)
    if where:
        jax.monitoring.register_event_duration_secs_listener(_count)
        atexit.register(_write, where)


def _count(event: str, seconds: float, **_: Any) -> None:
    if event == _COMPILED:
        _figures["programs"] += 1
        _figures["seconds"] += seconds


def collect() -> dict[str, Any]:
    """The figures so far: ``programs`` compiled (or read from the cache) in ``seconds``."""
    return {**_figures, "seconds": round(_figures["seconds"], 1)}


def describe(figures: dict[str, Any]) -> str:
    """The figures in a line."""
    return f"{figures['programs']} programs compiled in {figures['seconds']} s"


def _write(where: str) -> None:
    figures = collect()
    if where == "1":
        print(f"tpu_runtime: {describe(figures)}", file=sys.stderr)
    else:
        Path(where).write_text(json.dumps(figures | {"text": describe(figures)}), encoding="utf-8")
