"""Writes to views in which one element of memory occurs several times.

`x.unfold(0, 3, 1).add_(1)`: torch_xla 2.9 adds up the writes to one element, or
multiplies a change by their number. torch applies one after another, and refuses some. With
windows that skip elements, those become 0. Here such a write raises, also through a view of such
view.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..device import DEVICE_TYPE
from ..dispatch.replaced_kernels import substitute
from . import strides
from .memory_layouts import is_dense

_MAKERS = "unfold expand expand_as as_strided broadcast_to"


def _covers(x: Tensor, dim: int, size: int, step: int) -> bool:
    """Whether windows skip nothing: skipped elements become 0 when the windows are written."""
    length = x.shape[dim] if x.dim() else size
    return length == size or (step == size and length % size == 0)


class _Looking(TorchDispatchMode):
    """Records all views on the way to one."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.found |= (result.numel() > 0 and not is_dense(result)) or (
                func is torch.ops.aten.unfold.default and not _covers(args[0], *args[1:])
            )
        return result


def _is_written_once(x: Tensor) -> bool:
    """Whether each place of a view is a separate element, on the whole way from its base."""
    memory = strides.memory_of(x)
    if memory is None:
        return True
    with _Looking() as looking:
        try:
            x._view_func_unsafe(memory)
        except RuntimeError:  # real parts of conjugates
            return True
    return not looking.found


def _making(stock: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(stock)
    def make(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = stock(self, *args, **kwargs)
        if self.device.type == DEVICE_TYPE and result._base is not None:
            strides.ways_matter = strides.ways_matter or not _is_written_once(result)
        return result

    return make


def _writing(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if strides.ways_matter and self._base is not None and self.device.type == DEVICE_TYPE:
            if not _is_written_once(self):
                raise RuntimeError(
                    "in-place write to elements that are shared, or to windows that leave some "
                    "out: clone() it first"
                )
        return stock(self, *args, **kwargs)

    return write


def _writers(owner: Any) -> list[str]:
    names = [n for n in dir(owner) if n.endswith("_") and not n.startswith("_")]
    return [n for n in names if callable(getattr(owner, n)) and n not in _HARMLESS]


_HARMLESS = ("requires_grad_", "detach_", "share_memory_", "rename_", "retain_grad", "t_",
             "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "set_")  # fmt: skip


def install() -> None:
    """Intercept what creates such views, and from then on writes."""
    for name in _MAKERS.split():
        substitute(Tensor, name, _making(getattr(Tensor, name)))
    for name in ("as_strided", "broadcast_to"):
        substitute(torch, name, _making(getattr(torch, name)))
    for name in [*_writers(Tensor), "__setitem__"]:
        substitute(Tensor, name, _writing(getattr(Tensor, name)))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
        if hasattr(Tensor, f"__i{name}__"):
            substitute(Tensor, f"__i{name}__", _writing(getattr(Tensor, f"__i{name}__")))
