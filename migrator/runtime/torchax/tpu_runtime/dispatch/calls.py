"""How the other files treat torch calls: what a device tensor is, how to run natively, and a table
of functions that are replaced because torchax gets them wrong."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, Tensor
from torchax.view import View

from ..device import DEVICE_TYPE

Function = Callable[..., Any]
# Outside of torchax, reading an attribute of a tensor takes 0.06 µs instead of 20.
natively: Any = torch._C.DisableTorchFunction
# A replacement gets (env, function, args, kwargs); NotImplemented means "go on as usual".
Replacement = Callable[[Environment, Function, tuple[Any, ...], dict[str, Any]], Any]

replacements: dict[Function, Replacement] = {}  # filled by `replaces`


def replaces(*functions: Function) -> Callable[[Replacement], Replacement]:
    """Register a replacement for torch functions or methods that touch the device."""

    def register(replacement: Replacement) -> Replacement:
        for function in functions:
            replacements[function] = replacement
        return replacement

    return register


def patch(target: type | ModuleType, **attributes: Any) -> None:
    """Set attributes of a class or module of torch or torchax."""
    for name, value in attributes.items():
        setattr(target, name, value)


def is_device_tensor(value: object) -> bool:
    """Whether ``value`` is a torchax tensor."""
    return isinstance(value, (Tensor, View))


def holds_device_tensor(value: object) -> bool:
    """Whether ``value`` is a device tensor, or its lists, tuples and dicts contain one."""
    if isinstance(value, (Tensor, View)):
        return True
    if isinstance(value, (tuple, list)):
        return any(holds_device_tensor(item) for item in value)
    if isinstance(value, dict):
        return any(holds_device_tensor(item) for item in value.values())
    return False


def needs_gradient(value: object) -> bool:
    """Whether a gradient is required for ``value``, or anything in its lists, tuples and dicts."""
    return torch.is_grad_enabled() and _requires_grad(value)


def is_leaf(tensor: torch.Tensor) -> bool:
    """`tensor.is_leaf`, without dispatch: torch makes a view that was written to a new graph when
    it is asked. To be called under `natively`."""
    if not tensor.requires_grad:
        return True
    if tensor._is_view() and tensor._base.requires_grad:  # type: ignore[union-attr]
        return False
    return tensor.is_leaf


def _requires_grad(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    if isinstance(value, (tuple, list)):
        return any(_requires_grad(item) for item in value)
    if isinstance(value, dict):
        return any(_requires_grad(item) for item in value.values())
    return False


def register(env: Environment, operator: Any, function: Function, *, of_arrays: bool) -> Operator:
    """Compute an ATen operator with ``function``, which gets JAX arrays, or torch tensors.

    ``operator`` is one overload, or a packet, which removes all of torchax's own overloads. The
    in-place operator is derived from it (views.py), and not decomposed as torch does it.
    """
    packet = getattr(operator, "overloadpacket", operator)
    if (in_place := getattr(torch.ops.aten, f"{packet.__name__}_", None)) is not None:
        for overload in in_place.overloads():
            env._decomps.pop(getattr(in_place, overload), None)
    if isinstance(operator, torch._ops.OpOverloadPacket):
        for overload in operator.overloads():
            env._ops.pop(getattr(operator, overload), None)
    made = Operator(
        operator, function, is_jax_function=of_arrays, is_user_defined=True, needs_env=False,
        is_view_op=not of_arrays,
    )  # fmt: skip
    env._ops[operator] = made
    return made


def names_device(device: object) -> bool:
    """Whether a ``device=`` argument means the TPU; a number does.

    "cuda" does not, and fails in torch itself.
    """
    if device is None or isinstance(device, bool):
        return False
    return torch.device(device).type == DEVICE_TYPE  # type: ignore[call-overload, no-any-return]


def move(env: Environment, tensor: torch.Tensor) -> Tensor:
    """A CPU tensor's values as a device tensor."""
    return Tensor(env.t2j_copy(tensor.detach()), env, tensor.requires_grad)


def native(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``function`` as if torchax weren't there."""
    guard = torch._C._DisableTorchDispatch()
    try:
        return function(*args, **kwargs)
    finally:
        del guard
