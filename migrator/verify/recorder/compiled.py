"""Follows programs that the runtime compiles as a whole: then no Python code of a step runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from watch_training import Watch


@dataclass
class Traced:
    """What happens in a program, in order: the loss of a backward pass, a step of an optimizer.

    If a loss is a result of the program, its index is known after tracing.
    """

    happened: list[torch.Tensor | Optimizer | int | None] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)  # the results of the last call
    used: list[tuple[torch.Tensor, Any]] = field(default_factory=list)  # parameters, gradients
    cleared: bool = False  # by `zero_grad` after the step

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer is about to use the gradients of its parameters."""
        self.happened.append(optimizer)
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        self.used += [(p, _array_of(p.grad)) for p in parameters if p.grad is not None]

    def find(self, results: list[Any]) -> None:
        """Replace tensors of the trace by the numbers of results; None for those that don't leave
        it."""
        self.cleared = any(_array_of(p.grad) is not array for p, array in self.used)
        self.used.clear()
        for place, what in enumerate(self.happened):
            if isinstance(what, torch.Tensor):
                array = _array_of(what)
                same = (number for number, result in enumerate(results) if result is array)
                self.happened[place] = next(same, None)

    @property
    def losses(self) -> list[int | None]:
        return [what for what in self.happened if not isinstance(what, Optimizer)]  # type: ignore[misc]

    @property
    def steps(self) -> list[Optimizer]:
        return [what for what in self.happened if isinstance(what, Optimizer)]

    @property
    def leaves_gradients(self) -> bool:
        """Whether gradients are unchanged after the only step of an optimizer."""
        return len(self.steps) == 1 and len(self.losses) <= 1 and not self.cleared


def _array_of(tensor: torch.Tensor | None) -> Any:
    """The array that JAX traces for a tensor."""
    return tensor.__dict__["_elem"] if tensor is not None else None


def follow(watch: Watch) -> None:
    """Watch the programs that torchax's runtime runs, if it is imported. Models in evaluation are
    separate programs: their inputs and outputs are watched."""
    programs = sys.modules.get("tpu_runtime.compilation.compiled_program")
    tracing = sys.modules.get("tpu_runtime.compilation.tracing")
    parts = sys.modules.get("tpu_runtime.compilation.partial_compilation")
    watched = sys.modules.get("tpu_runtime.compilation.program_code")
    if programs is None or tracing is None or parts is None or watched is None:
        if "tpu_runtime.dispatch.modes" in sys.modules and not watch.closely:
            watch.modules_called(training=False)  # torchax, in a copy that compiles no models
        return
    # A step neither depends on this nor changes it.
    watched.LIBRARIES += (str(Path(__file__).resolve().parent) + os.sep,)  # type: ignore[attr-defined]
    if not watch.closely:
        install = parts.install

        def installed(env: Any) -> None:
            install(env)
            watch.modules_called(training=False)  # around the runtime's handling of a call

        parts.install = installed  # type: ignore[attr-defined]
    trace, outputs, make = tracing.Trace.run, tracing.Trace._outputs, tracing.Trace.program
    run = programs.Program.run

    def traced(self: Any) -> Any:
        self.watched = watch.tracing = Traced()
        try:
            return trace(self)
        finally:
            watch.tracing = None

    def left(self: Any, *args: Any) -> Any:
        found = outputs(self, *args)
        self.watched.find(found[4])
        return found

    def made(self: Any, *args: Any) -> Any:
        program, seen = make(self, *args), self.watched
        program.watched, compiled = seen, program.compiled

        def call(*args: Any) -> Any:
            found = compiled(*args)
            seen.given = found[4]
            return found

        program.compiled = call
        return program

    def executed(self: Any, *args: Any) -> Any:
        watch.begin(self.watched.steps)
        result = run(self, *args)
        _tell(watch, self.watched)
        self.watched.given = []
        return result

    tracing.Trace.run, tracing.Trace._outputs = traced, left  # type: ignore[attr-defined]
    tracing.Trace.program, programs.Program.run = made, executed  # type: ignore[attr-defined]


def _tell(watch: Watch, seen: Traced) -> None:
    """Report the events as they would have been seen operator by operator, as far as possible."""
    before, all_there = watch.step, None not in seen.losses
    for what in seen.happened:
        if isinstance(what, Optimizer):
            if seen.leaves_gradients:
                watch.gradients(what)
            watch.step += 1
        elif all_there:
            array = seen.given[what]  # type: ignore[index]
            if array.size == 1:
                watch.loss(torch.tensor(float(array), dtype=getattr(torch, str(array.dtype))))
    watch.step = before
    watch.stepped(len(seen.steps))


def in_parts() -> list[str]:
    """The steps and modules that are not compiled as a whole, and why."""
    report = sys.modules.get("tpu_runtime.profiling.report")
    if report is None:
        return []
    found = report.collect().get("functions", [])
    eager = [(f["name"], f["why_eager"]) for f in found if f["why_eager"]]
    return [f"{name} is not compiled as a whole: {why}" for name, why in eager]
