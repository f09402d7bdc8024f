"""Follows what the runtime compiles as a whole: no hook of an optimizer runs in it."""

from __future__ import annotations

import sys
from typing import Any

from watch import Watch


def follow(watch: Watch) -> None:
    """Count the optimizer steps of each program that torchax's runtime runs, if that is here; and
    see what models that evaluate are given, and give: they are programs of their own."""
    programs = sys.modules.get("tpu_runtime.programs")
    tracing = sys.modules.get("tpu_runtime.tracing")
    parts = sys.modules.get("tpu_runtime.parts")
    if programs is None or tracing is None or parts is None:
        return
    if not watch.closely:
        install = parts.install

        def installed(env: Any) -> None:
            install(env)
            watch.modules_called(training=False)  # around what the runtime does with a call

        parts.install = installed  # type: ignore[attr-defined]
    trace, run = tracing.Trace.run, programs.Program.run
    steps: dict[int, tuple[int, Any]] = {}  # in each program, which is kept for its id

    def traced(self: Any) -> Any:
        watch.traced = 0  # the last one of several is that of the program
        return trace(self)

    def executed(self: Any, *args: Any) -> Any:
        result = run(self, *args)
        number, _ = steps.setdefault(id(self), (watch.traced, self))
        watch.stepped(number)
        return result

    tracing.Trace.run, programs.Program.run = traced, executed  # type: ignore[attr-defined]
