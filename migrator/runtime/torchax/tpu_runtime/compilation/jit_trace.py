"""`torch.jit.trace` of a module on the device: the trace of a CPU copy.

torch's tracer can't follow device tensors. What is made from a trace, a file or the graph that
TensorBoard shows, is that of the copy; for computing on the device, the module itself is called.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torchax.tensor import Environment

from ..dispatch.calls import holds_device_tensor, is_device_tensor, native, patch
from ..tensors.tensor_identity import OnCpu, on_cpu


def _refuse(module: torch.nn.Module, args: object) -> None:
    if holds_device_tensor(args):
        raise RuntimeError("a traced module computes on the CPU only: call the module itself")


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value, OnCpu())
    return on_cpu(value) if is_device_tensor(value) else value


def _plainly(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A trace by torch alone: while torchax intercepts calls, those on the CPU aren't seen."""
    with torch._C.DisableTorchFunction():
        return native(stock, args, kwargs)


def _tracing(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def trace(func: Any, *args: Any, **kwargs: Any) -> Any:
        is_module = isinstance(func, torch.nn.Module)
        state = [*func.parameters(), *func.buffers()] if is_module else []
        leaves = pytree.tree_leaves((args, kwargs))
        if not holds_device_tensor(state) and not holds_device_tensor(leaves):
            return _plainly(stock, func, *args, **kwargs)
        if not is_module:
            raise RuntimeError("torch.jit.trace cannot follow device tensors: call the function")
        try:
            with torch.random.fork_rng(devices=[]):
                func, args, kwargs = pytree.tree_map(_on_cpu, (func, args, kwargs))
                traced = _plainly(stock, func, *args, **kwargs)
        except Exception as error:
            raise RuntimeError(
                f"torch.jit.trace follows a CPU copy of {type(func).__name__}, which fails: {error}"
            ) from error
        traced.register_forward_pre_hook(_refuse)
        return traced

    return trace


def install(env: Environment) -> None:
    """Trace copies of modules on the device."""
    patch(torch.jit, trace=_tracing(torch.jit.trace))
    patch(torch.jit, trace_module=_tracing(torch.jit.trace_module))
