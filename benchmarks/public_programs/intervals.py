"""What happens between two steps: `python intervals.py TARGET KIND COUNT OUT SCRIPT ARGUMENTS…`

Runs a script, an original (TARGET is `cpu`) or a migrated one, and ends it after COUNT calls of an
optimizer's `step()` (or, if it has none, backward passes), or fewer where they take long. OUT gets
a list with, at the end of each step: the process's CPU seconds, the programs that were compiled so
far, and those that ran. With torchax, all that JAX runs counts, but for what only moves or converts
a batch or a number; with torch_xla, what it executes. On a CPU and torch_tpu, nothing is counted.

KIND is `programs` or `seconds`: programs whose starts are counted start more slowly, so seconds are
measured in a run that counts none, and in which what JAX traces counts as compiled, too.
"""

from __future__ import annotations

import atexit
import functools
import json
import runpy
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import execution_hooks
import torch

target, kind, count, out, script = *sys.argv[1:3], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]
sys.path[0] = str(Path(script).resolve().parent)
LONG, ENOUGH = 30, 8  # after so many CPU seconds, so few steps do
MOVES = ("jit(stage)", "jit(convert_element_type)", "jit(broadcast_in_dim)", "jit(copy)")
PROGRAMS = "/jax/core/compile/backend_compile_duration"
TRACES = "/jax/core/compile/jaxpr_trace_duration"
made = {"compiled": 0, "ran": 0}
steps: list[tuple[float, int, int]] = []
passes: list[tuple[float, int, int]] = []


def counters() -> tuple[int, int]:
    return made["compiled"], made["ran"]


def note(which: list[tuple[float, int, int]]) -> None:
    which.append((time.process_time(), *counters()))
    ended = steps or passes
    enough = count if ended[-1][0] - ended[0][0] < LONG else ENOUGH
    if len(ended) >= enough and (which is steps or not steps):
        raise SystemExit


def passing(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def backward(*args: Any, **kwargs: Any) -> Any:
        result = stock(*args, **kwargs)
        note(passes)
        return result

    return backward


def install() -> None:
    execution_hooks.after_each_step(lambda: note(steps))
    torch.Tensor.backward = passing(torch.Tensor.backward)  # type: ignore[method-assign]


def count_jax(tpu_runtime: Any) -> None:
    import jax
    from tpu_runtime.compilation import program_code

    # The functions here are no part of the program.
    program_code.LIBRARIES += (__file__, execution_hooks.__file__)

    def executing(name: str) -> None:
        made["ran"] += name not in MOVES

    counted = (PROGRAMS,) if kind == "programs" else (PROGRAMS, TRACES)

    def compiling(event: str, seconds: float, **_: Any) -> None:
        made["compiled"] += event in counted

    if kind == "programs":
        execution_hooks.before_each_execution(executing)
    jax.monitoring.register_event_duration_secs_listener(compiling)
    setup = tpu_runtime.setup

    def with_steps(*args: Any, **kwargs: Any) -> Any:
        tpu_runtime.setup = setup
        done = setup(*args, **kwargs)
        install()
        return done

    tpu_runtime.setup = with_steps


def count_xla() -> None:
    global counters
    from torch_xla.debug import metrics

    def counters() -> tuple[int, int]:
        found = [metrics.metric_data(name) for name in ("CompileTime", "ExecuteTime")]
        compiled, ran = (int(data[0]) if data else 0 for data in found)
        return compiled, ran


def main() -> None:
    if target == "torchax" and find_spec("tpu_runtime"):  # not for what needs no device
        import tpu_runtime

        count_jax(tpu_runtime)
    else:
        if target == "torch_xla":
            count_xla()
        install()
    atexit.register(lambda: out.write_text(json.dumps(steps or passes)))
    sys.argv[:] = sys.argv[5:]
    runpy.run_path(script, run_name="__main__")


main()
