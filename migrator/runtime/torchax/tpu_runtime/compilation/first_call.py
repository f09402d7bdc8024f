"""Compiling a step of training that has not run yet.

It is compiled at its first call if it is certain that nothing is missed: its models and optimizers
are those that it names, an optimizer's state is created beforehand, and all of its code only
computes (purity.py). Otherwise it runs once as it is written, and is compiled when it is called
again.
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
from .referenced_objects import members_of
from .tracing import GradientUsed, Trace


def compile_new(memory: Memory, env: Environment, call: CallArguments) -> Program:
    """Compile a function that has not run yet: FirstTime if it has to run once before."""
    fresh, named = FreshState(), memory.trainers.take(members_of(memory.function))
    try:
        return _compile_new(memory, env, call, fresh, named)
    except BaseException as error:
        fresh.undo()
        memory.trainers.leave_out(named)
        if isinstance(error, NotCompilable):
            raise FirstTime from error
        raise


def _compile_new(
    memory: Memory, env: Environment, call: CallArguments, fresh: FreshState, named: set[int]
) -> Program:
    trainers, expecting = memory.trainers, _drops_gradients_first(memory.function)
    for _ in range(TRACES):
        if (mesh.in_use() is not None and trainers.optimizers) or not _are_on_device(trainers):
            raise FirstTime
        fresh.make(trainers.optimizers.values())
        for optimizer in trainers.optimizers.values():
            step_counts_on_device(optimizer)
        inspection, known = Inspection(), trainers.size
        trace = Trace(memory, env, call, None, inspection, expecting)
        try:
            traced = trace.run()
        except GradientUsed:
            expecting = False
            continue
        except FirstTime:
            if trainers.size == known:
                raise
            continue  # now a participant that isn't named is known
        finally:
            inspection.tensors.clear()  # a tensor with a weak reference cannot be swapped
        if inspection.refused or trace.stores or trace.leaves_gradients():
            raise FirstTime  # otherwise the next call finds a different state
        memory.watch.learn(inspection.codes)
        fresh.drop_unused(trace.touched)
        trainers.leave_out(named - trainers.took_part())
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


def _drops_gradients_first(function: Any) -> bool:
    """Whether `zero_grad` comes before `backward`: all calls but the first have gradients."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    if "zero_grad" not in names:
        return False
    return "backward" not in names or names.index("zero_grad") < names.index("backward")
