"""Kernels that replace torch_tpu's own. They are below autograd: gradients stay torch's."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., Any]
KEY = "PrivateUse1"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)

_library = torch.library.Library("aten", "IMPL")  # its registrations live as long as it does


def stock(name: str) -> Kernel:
    """The current kernel of the operator ``name``."""
    kernel = torch.library.get_kernel(f"aten::{name}", KEY)
    return functools.partial(kernel.call_boxed, _KEYS)


def replace(name: str, kernel: Kernel) -> None:
    """Use ``kernel`` for the operator ``name`` on device tensors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        _library.impl(name, kernel, KEY, allow_override=True)
