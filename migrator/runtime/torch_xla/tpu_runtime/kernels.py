"""Kernels in place of torch_xla's own. They are below autograd: gradients stay torch's."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.XLA)


def stock(name: str) -> Callable[..., Any]:
    """The kernel of the operator ``name``, as it is now; it takes all arguments by position."""
    kernel = torch.library.get_kernel(f"aten::{name}", "XLA")  # type: ignore[attr-defined]
    return functools.partial(kernel.call_boxed, _KEYS)


def replace(name: str, kernel: Callable[..., Any]) -> None:
    """Let tensors of the device use ``kernel`` for the operator ``name``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        _library.impl(name, kernel, "XLA", allow_override=True)
