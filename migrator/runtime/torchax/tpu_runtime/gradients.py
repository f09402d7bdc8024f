"""Gradients that torchax loses: in shortcuts, direct calls of operators, and moves between devices.

torchax 0.0.13 computes 30 torch functions (linear, einsum, pad, max_pool2d, interpolate, cdist,
repeat_interleave, diag, linalg.solve, ...) with JAX in one piece, below torch's autograd, and also
calls of `torch.ops.aten...`: the result silently requires no gradient. If a gradient is required,
torch's own implementation splits such a call into operators that have one.
"""

from typing import Any

import torch
from torchax.tensor import Environment, Tensor

from .calls import Function, is_device_tensor, native, needs_gradient

_shortcuts: set[Function] = set()


def bypasses_autograd(function: Function, args: object, kwargs: object) -> bool:
    """Whether torchax would compute this call without the required gradient."""
    return is_shortcut(function) and (needs_gradient(args) or needs_gradient(kwargs))


def is_shortcut(function: Function) -> bool:
    """Whether torchax computes this function in one piece, below torch's autograd."""
    operators = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    return function in _shortcuts or isinstance(function, operators)


class _Crossing(torch.autograd.Function):
    """A copy on the other device, CPU or TPU; its gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, env: Environment) -> torch.Tensor:
        ctx.env = env
        return _cross(tensor, env)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Crossing.apply(gradients[0], ctx.env), None  # type: ignore[no-untyped-call]


def _cross(tensor: Any, env: Environment) -> torch.Tensor:
    if is_device_tensor(tensor):
        return tensor.torch()  # type: ignore[no-any-return]
    with torch._C.DisableTorchFunctionSubclass():  # lazy modules' parameters allow few functions
        return Tensor(env.t2j_copy(native(tensor.detach, (), {})), env)


def to_other_device(env: Environment, tensor: torch.Tensor) -> torch.Tensor:
    """A device tensor as a CPU tensor or the other way round, with its gradient if required.

    torchax 0.0.13 silently cuts the gradient off, in both directions.
    """
    if needs_gradient(tensor):
        with env:
            return _Crossing.apply(tensor, env)  # type: ignore[no-any-return, no-untyped-call]
    return _cross(tensor, env)


def install(env: Environment) -> None:
    """Record which torch functions torchax has a shortcut for."""
    operators = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    _shortcuts.update(function for function in env._ops if not isinstance(function, operators))
    # torch.sparse.mm makes a sparse result by its own rules; there are no sparse device tensors.
    _shortcuts.discard(torch.sparse.mm)
    # Not as_strided, which is useless for JAX arrays: the view operators themselves lead from
    # the gradient of a base to that of its view.
    torch._C._set_view_replay_enabled(True)
