"""Computes a program in float64: what two runs of it then differ by is not rounding.

Tensors of other floating-point types, which functions of torch give or are given, become float64
where they appear: numbers read from files, images, `x.float()`, `dtype=torch.float32`, and halves.
`torch.autocast` and scalers of losses do nothing: CUDA's leaves float64 as it is, a target's may
not, and kernels of scalers are for float32. Random numbers are drawn in float32 (`randomness.py`),
so that a program starts from the same values as without this.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


class DoublePrecision(TorchFunctionMode):
    """Gives functions of torch their arguments in float64, and makes it the type of new tensors."""

    def install(self) -> None:
        """Start, for the rest of the process."""
        torch.set_default_dtype(torch.float64)
        _disable_scaling(torch.amp.GradScaler)
        _disable_autocast(torch.autocast)
        own = getattr(sys.modules.get("tpu_runtime"), "autocast", None)
        if isinstance(own, type):
            _disable_autocast(own)
        self.__enter__()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if is_in_place(function):  # its tensor stays what it is
            return function(*args, **(kwargs or {}))
        args, kwargs = pytree.tree_map(_wider, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, _wider, function(*args, **kwargs))


def _disable_scaling(scaler: Any) -> None:
    """Let new scalers of a class scale nothing."""
    initialize = scaler.__init__

    @functools.wraps(initialize)
    def disabled(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        self._enabled = False

    scaler.__init__ = disabled


def _disable_autocast(autocast: Any) -> None:
    """Let new contexts of a class do nothing; the first argument is the device or ``enabled``."""
    initialize = autocast.__init__

    @functools.wraps(initialize)
    def disabled(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and isinstance(args[0], bool):
            args = False, *args[1:]
        elif len(args) > 2:
            args = *args[:2], False, *args[3:]
        else:
            kwargs["enabled"] = False
        initialize(self, *args, **kwargs)

    autocast.__init__ = disabled


def is_in_place(function: Any) -> bool:
    """Whether a function of torch changes the tensor that it is called on, or asks about it."""
    name = str(getattr(function, "__name__", ""))
    return name in ("__set__", "__get__", "__setitem__") or (
        name.endswith("_") and not name.endswith("__")
    )


def _wider(value: Any) -> Any:
    """A tensor or dtype in float64; anything else as it is."""
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
        with torch._C.DisableTorchFunction():
            return value.to(_WIDER[value.dtype])
    return value
