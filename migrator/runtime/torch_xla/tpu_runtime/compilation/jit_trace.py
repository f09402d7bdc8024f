"""`torch.jit.trace` of a module on the device: the trace of a CPU copy.

TensorBoard's `add_graph` and exports need this. The tracer doesn't see kernels written in
Python, like those of convolutions, and would keep their results as constants.
"""

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch_xla
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE


def _is_there(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == DEVICE_TYPE


def _cpu(value: Any) -> Any:
    """A tensor on the CPU, or "cpu" in place of the device's name."""
    if _is_there(value):
        moved = value.detach().cpu()
        if isinstance(value, nn.Parameter):
            return nn.Parameter(moved, value.requires_grad)
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) and value.type == DEVICE_TYPE:
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == DEVICE_TYPE:
        return "cpu"
    return value


class _OnTheCpu(TorchFunctionMode):
    """In a forward pass on the CPU, replace the device, as in `torch.zeros(3, device="xla")`."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map(_cpu, (args, kwargs or {}))
        return func(*args, **kwargs)


def _held(module: nn.Module) -> Iterable[Tensor]:
    """Device tensors: parameters, buffers and plain attributes."""
    parts = (pytree.tree_leaves(vars(part)) for part in module.modules())
    return filter(_is_there, (leaf for leaves in parts for leaf in leaves))


def _tracing_a_copy(trace: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(trace)
    def traced(func: Any, *args: Any, **kwargs: Any) -> Any:
        held = list(_held(func)) if isinstance(func, nn.Module) else []
        if not held and not any(map(_is_there, pytree.tree_leaves((args, kwargs)))):
            return trace(func, *args, **kwargs)
        if not isinstance(func, nn.Module):
            raise RuntimeError("torch.jit.trace cannot follow functions of XLA tensors")
        torch_xla.sync()
        copied = copy.deepcopy(func, {id(tensor): _cpu(tensor) for tensor in held})
        args, kwargs = pytree.tree_map(_cpu, (args, kwargs))
        with torch.random.fork_rng(devices=[]), _OnTheCpu():
            return trace(copied, *args, **kwargs)

    return traced


def install() -> None:
    """Replace the functions of `torch.jit`."""
    for name in ("trace", "trace_module"):
        setattr(torch.jit, name, _tracing_a_copy(getattr(torch.jit, name)))
