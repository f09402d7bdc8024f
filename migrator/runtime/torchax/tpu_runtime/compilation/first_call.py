"""Compiling a call of a model or an optimizer whose code has not run yet.

It is compiled if it is certain that nothing is missed: an optimizer's state is created beforehand,
and all of its code only computes (purity.py). Otherwise it runs once as it is written, and is
compiled when it is called again.
"""

from typing import Any

from torchax.tensor import Environment

from ..dispatch.calls import is_device_tensor
from ..distributed import mesh
from .build_program import TRACES, complete
from .compile_state import FirstTime, NotCompilable
from .compiled_program import Program
from .function_state import CallArguments, Memory
from .initial_optimizer_state import FreshState
from .models_and_optimizers import Trainers, step_counts_on_device
from .purity import Inspection
from .tracing import Trace


def compile_new(memory: Memory, env: Environment, call: CallArguments) -> Program:
    """Compile a function that has not run yet: FirstTime if it has to run once before."""
    fresh = FreshState()
    memory.trainers.take([memory.function.__self__])  # type: ignore[attr-defined]
    try:
        return _compile_new(memory, env, call, fresh)
    except BaseException as error:
        fresh.undo()
        if isinstance(error, NotCompilable):
            raise FirstTime from error
        raise


def _compile_new(
    memory: Memory, env: Environment, call: CallArguments, fresh: FreshState
) -> Program:
    trainers = memory.trainers
    for _ in range(TRACES):
        if (mesh.in_use() is not None and trainers.optimizers) or not _are_on_device(trainers):
            raise FirstTime
        fresh.make(trainers.optimizers.values())
        for optimizer in trainers.optimizers.values():
            step_counts_on_device(optimizer)
        inspection, known = Inspection(), len(trainers.modules)
        trace = Trace(memory, env, call, None, inspection)
        try:
            traced = trace.run()
        except FirstTime:
            if len(trainers.modules) == known:
                raise
            continue  # now a module that isn't a part of the model is known
        finally:
            inspection.tensors.clear()  # a tensor with a weak reference cannot be swapped
        if inspection.refused or trace.stores:
            raise FirstTime  # otherwise the next call finds a different state
        memory.watch.learn(inspection.codes)
        fresh.drop_unused(trace.touched)
        return complete(trace, traced, None)
    raise FirstTime


def _are_on_device(trainers: Trainers) -> bool:
    """Whether none of their tensors is on the CPU, which a trace can't follow."""
    buffers = [b for m in trainers.modules.values() for b in m._buffers.values() if b is not None]
    tensors: list[Any] = [*trainers.parameters(), *buffers]
    if (not trainers.modules and not tensors) or not all(map(is_device_tensor, tensors)):
        return False
    for tensor in tensors:
        tensor.jax()  # drops its base, if nothing else holds that
    return True
