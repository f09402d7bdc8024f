"""Gradients that torchax loses: in shortcuts, direct calls of operators, and moves between devices.

torchax 0.0.13 computes 30 torch functions (linear, einsum, pad, max_pool2d, interpolate, cdist,
repeat_interleave, diag, linalg.solve, ...) with JAX in one piece, below torch's autograd, and also
calls of `torch.ops.aten...`: the result silently requires no gradient. If a gradient is required,
torch's own implementation splits such a call into operators that have one.
"""

from inspect import signature
from typing import Any

import torch
from torchax.tensor import Environment, Tensor

from ..profiling import costly_lines
from .calls import Function, is_device_tensor, native, needs_gradient

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_shortcuts: dict[Function, frozenset[str]] = {}  # with the names of their parameters


def bypasses_autograd(function: Function, args: object, kwargs: dict[str, Any]) -> bool:
    """Whether torchax computes it without the required gradient, or has other keywords for it."""
    return is_shortcut(function) and (
        not kwargs.keys() <= _shortcuts.get(function, kwargs.keys())  # F.linear(input=x, …)
        or needs_gradient(args) or needs_gradient(kwargs)
    )  # fmt: skip


def is_shortcut(function: Function) -> bool:
    """Whether torchax computes this function in one piece, below torch's autograd."""
    return function in _shortcuts or isinstance(function, _OPERATORS)


class _Crossing(torch.autograd.Function):
    """A copy on the other device, CPU or TPU; its gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, env: Environment) -> torch.Tensor:
        ctx.env = env
        return _cross(tensor, env)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Crossing.apply(gradients[0], ctx.env), None


def _cross(tensor: Any, env: Environment) -> torch.Tensor:
    if is_device_tensor(tensor):
        costly_lines.note_read(tensor)
        return tensor.torch()  # type: ignore[no-any-return]
    with torch._C.DisableTorchFunctionSubclass():  # lazy modules' parameters allow few functions
        return Tensor(env.t2j_copy(native(tensor.detach, (), {})), env)


def to_other_device(env: Environment, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the CPU or the device on the other, with the gradient that torchax cuts off."""
    if needs_gradient(tensor):
        with env:
            return _Crossing.apply(tensor, env)  # type: ignore[no-any-return]
    return _cross(tensor, env)


def install(env: Environment) -> None:
    """Record which torch functions torchax has a shortcut for."""
    for function in (function for function in env._ops if not isinstance(function, _OPERATORS)):
        _shortcuts[function] = frozenset(signature(env._ops[function].func).parameters)
    # torch.sparse.mm makes a sparse result by its own rules; there are no sparse device tensors.
    _shortcuts.pop(torch.sparse.mm, None)
    # Not as_strided, which is useless for JAX arrays: the view operators themselves lead from
    # the gradient of a base to that of its view.
    torch._C._set_view_replay_enabled(True)
