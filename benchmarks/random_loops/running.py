"""Runs a program in this process, and notes what it prints and holds."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from migrator.targets.copies import folder_to_import
from random_loops.comparing import Run
from random_loops.observing import OBSERVE, observer, state_of, watched

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds of a processor for a program
KINDS = ("original", "held", "eager")  # CPU torch; torchax; torchax, an operator at a time

_folder: Any = None


def begin(kind: str) -> None:
    """Prepare this process for programs of one kind."""
    global _folder
    _folder = tempfile.TemporaryDirectory()
    if kind != "original":
        os.environ["JAX_ENABLE_X64"] = "1"
        sys.path.insert(0, str(folder_to_import("torchax")))
        if kind == "eager":
            os.environ["TPU_RUNTIME_EAGER"] = "1"
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    if kind == "original":
        sys.path.insert(0, str(ROOT / "migrator" / "verify" / "recorder"))
        import_module("cpu_stand_in").install()
        del sys.path[0]
    else:
        import_module("tpu_runtime").setup()
        _count_compilations()


class Counters:
    """Programs that ran held and that were compiled, and backward passes, since the last round."""

    compilations = 0
    backward_passes = 0

    def __init__(self) -> None:
        self._last = self._now()

    def _now(self) -> tuple[int, int, int]:
        programs = sys.modules.get("tpu_runtime.lazy.lazy_programs")
        calls = programs.record.calls if programs else 0
        return calls, Counters.compilations, Counters.backward_passes

    def note(self, run: Run) -> None:
        now = self._now()
        held, compiled, passes = (a - b for a, b in zip(now, self._last, strict=True))
        run.held.append(held)
        run.compiled.append(compiled)
        run.passes.append(passes)
        self._last = now


def _count_compilations() -> None:
    import jax

    def count(event: str, seconds: float, **_: Any) -> None:
        Counters.compilations += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(count)


@contextlib.contextmanager
def _passes_counted() -> Iterator[None]:
    """Count backward passes, and calls of `torch.autograd.grad`, of CPU torch."""
    import torch.autograd as autograd

    engine = autograd._engine_run_backward  # type: ignore[attr-defined]  # or the runtime's

    def counted(*args: Any, **kwargs: Any) -> Any:
        Counters.backward_passes += 1
        return engine(*args, **kwargs)

    autograd._engine_run_backward = counted  # type: ignore[attr-defined]
    try:
        yield
    finally:
        autograd._engine_run_backward = engine  # type: ignore[attr-defined]


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"it takes longer than {LIMIT} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(text: str, *, rounds: bool = True) -> Run:
    """Run a program, and read its values after each round, or only when it has ended."""
    done, counters, start = Run(), Counters(), time.perf_counter()
    path = Path(_folder.name) / "loop.py"
    path.write_text(text, "utf-8")
    module = types.ModuleType("__main__")
    names = vars(module) | {"__file__": str(path)}

    def after(seen: dict[str, Any]) -> None:
        if rounds:
            done.rounds.append(state_of(_own(seen)))
        counters.note(done)

    names[OBSERVE] = observer(after)
    printed = io.StringIO()
    with _limited(), _passes_counted(), contextlib.redirect_stdout(printed), _as_before():
        try:
            exec(watched(text, str(path)), names)
            done.end = state_of(_own(names))
        except Exception as error:
            done.error = _described(error, str(path))
    done.printed, done.seconds = printed.getvalue(), time.perf_counter() - start
    return done


def _own(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name != OBSERVE}


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Nothing of a program is left to the next one."""
    import torch

    graph = sys.modules.get("tpu_runtime.lazy.lazy_graph")
    if graph is not None:
        sys.modules["tpu_runtime.lazy.lazy_programs"]._programs.clear()
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        if graph is not None:
            with contextlib.suppress(Exception):
                graph.run()


def _described(error: Exception, path: str) -> str:
    """The error, and the last line of the program that it came through."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    message = (str(error).splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {message} (line {lines[-1] if lines else '?'})"
