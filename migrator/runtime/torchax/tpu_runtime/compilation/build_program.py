"""Compiling a function: it is traced until all its inputs and outputs are known."""

from typing import Any

from torchax.tensor import Environment

from .compile_state import NotCompilable
from .compiled_program import Program
from .function_state import CallArguments, Memory
from .models_and_optimizers import step_counts_on_device
from .tracing import Trace

TRACES = 6


def compile_program(memory: Memory, env: Environment, call: CallArguments) -> Program:
    """Trace until all inputs are known, and compile."""
    for optimizer in memory.trainers.optimizers.values():
        step_counts_on_device(optimizer)
    trace = Trace(memory, env, call, None)
    return complete(trace, trace.run(), None)


def complete(trace: Trace, traced: Any, before: Trace | None) -> Program:
    """Trace again until nothing new is found, and compile."""
    for _ in range(TRACES + 1):
        if trace.follows(before):
            trace.check_owners()
            return trace.program(traced)
        before, trace = trace, trace.next()
        traced = trace.run()
    raise NotCompilable("it makes new tensors of its own state at every call")
