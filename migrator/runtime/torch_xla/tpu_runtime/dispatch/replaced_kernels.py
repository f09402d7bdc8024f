"""Kernels that replace torch_xla's own, and functions that replace torch's.

Kernels are below autograd: gradients stay torch's.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins
from torch.utils import _pytree as pytree

from ..device import DEVICE_TYPE

Kernel = Callable[..., Any]

# The registrations live as long as this object.
_library = torch.library.Library("aten", "IMPL")
KEY = "XLA"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.XLA)


def stock(name: str) -> Kernel:
    """The current kernel of the operator ``name``; it takes all arguments by position."""
    kernel = torch.library.get_kernel(f"aten::{name}", KEY)
    return functools.partial(kernel.call_boxed, _KEYS)


def replace(name: str, kernel: Kernel) -> None:
    """Use ``kernel`` for the operator ``name`` on device tensors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        _library.impl(name, _of_tensors(name, kernel), KEY, allow_override=True)


def _of_tensors(name: str, kernel: Kernel) -> Kernel:
    """Convert numbers to device tensors where an operator expects tensors.

    PyTorch passes the number in `x.xlogy(2)` unchanged. A CPU tensor without dimensions also counts
    as a number next to device tensors: with one stock raises, and `clamp` loses a bound.
    """
    arguments = operator_of(name)._schema.arguments
    kinds = ("Tensor", "Optional[Tensor]")
    places = [n for n, argument in enumerate(arguments) if str(argument.type) in kinds]

    def kernel_of_tensors(*args: Any, **kwargs: Any) -> Any:
        given = [*args]
        for n in (n for n in places if n < len(args) and _is_number(args[n])):
            there = next(x for x in args if isinstance(x, Tensor) and x.device.type == DEVICE_TYPE)
            of_torch = isinstance(args[n], Tensor)
            dtype = args[n].dtype if of_torch else torch.result_type(there, args[n])
            given[n] = torch.as_tensor(args[n], dtype=dtype, device=there.device)
        return kernel(*given, **kwargs)

    return kernel_of_tensors if len(places) > 1 else kernel


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.dim() and value.device.type == "cpu"
    return isinstance(value, (int, float, complex))


def replace_all(kernels: Mapping[Callable[[str], Kernel], str]) -> None:
    """Replace the kernels of the names, each by a function made for it."""
    for make, names in kernels.items():
        for name in names.split():
            replace(name, make(name))


def operator_of(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def on_cpu(name: str) -> Kernel:
    """The operator, computed by torch on the CPU."""
    operator = operator_of(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        devices = [leaf.device for leaf in leaves if isinstance(leaf, Tensor)]
        device = next((d for d in devices if d.type == DEVICE_TYPE), devices[0])
        args, kwargs = pytree.tree_map_only(Tensor, Tensor.cpu, (args, kwargs))
        results = operator(*args, **kwargs)
        return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), results)

    return kernel


def substitute(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace ``name`` in ``owner``, torch or a class, by ``function``; scripts keep torch's own.

    TorchScript identifies torch's functions by identity, and can't compile others.
    """
    operator = _builtins._find_builtin(getattr(owner, name))
    if operator:
        _builtins._register_builtin(function, operator)
    setattr(owner, name, function)
